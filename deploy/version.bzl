"""The version that packages carry; that of the chart (helm/lockstep/Chart.yaml) is the same."""

VERSION = "0.1.0"
