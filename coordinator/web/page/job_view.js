// What is shown of a job: its state, plan, workers, buffers, drift.
import {bytes, element, fillTable, schedule, word} from "./format.js";

const $ = (id) => document.getElementById(id);
const kStateClass = {
  STATE_RUNNING: "good", STATE_TRAINING: "good", STATE_FORMING: "warn", STATE_SUSPECT: "bad",
  STATE_PENDING: "warn", STATE_EFFECTIVE: "good",
};
export const stateClass = (state) => kStateClass[state] ?? "";

// Steps per second, from what was seen at the time before.
class Rates {
  #seen = new Map();
  at(key, step, now) {
    const before = this.#seen.get(key);
    if (!before || step < before.step || now - before.now > 30_000) {
      this.#seen.set(key, {step, now, rate: null});
      return null;
    }
    if (now - before.now >= 900) {
      const rate = (step - before.step) * 1000 / (now - before.now);
      this.#seen.set(key, {step, now, rate});
      return rate;
    }
    return before.rate;
  }
}

// The largest difference that a worker reports, by time, while the page is open.
class DriftChart {
  #times = [];
  #values = [];
  #plot = null;
  add(value, now) {
    if (this.#values.length > 3600) {
      this.#times.shift();
      this.#values.shift();
    }
    this.#times.push(now / 1000);
    this.#values.push(value);
    const data = [this.#times, this.#values];
    if (this.#plot) {
      this.#plot.setData(data);
      return;
    }
    this.#plot = new uPlot({
      width: Math.min($("drift").clientWidth || 600, 1200), height: 180,
      series: [{}, {label: "largest difference", stroke: "#1f77b4", width: 2, points: {size: 4}}],
      axes: [{}, {size: 80}],
    }, data, $("drift"));
  }
  clear() {
    this.#times = [];
    this.#values = [];
    this.#plot?.destroy();
    this.#plot = null;
  }
}

export class JobView {
  #rates = new Rates();
  #drift = new DriftChart();

  clear() {
    this.#drift.clear();
  }

  showJob(job, now) {
    $("name").textContent = job.spec.name;
    $("detail").textContent = job.detail;
    const rate = this.#rates.at(`job ${job.spec.name}`, Number(job.step), now);
    const facts = [
      ["state", word(job.state), stateClass(job.state)],
      ["epoch", job.epoch],
      ["step", job.step],
      ["steps/s", rate === null ? "" : rate.toFixed(1)],
      ["workers needed", String(job.spec.minWorkers)],
      ["policy revision", `${job.policy.revision} (${word(job.policy.state)})`, stateClass(job.policy.state)],
      ["control log", job.logNumber],
      ["in force", job.appliedLogNumber],
    ];
    $("facts").replaceChildren(...facts.map(([name, value, className]) => {
      const pair = element("div");
      pair.append(element("dt", name), element("dd", value, className));
      return pair;
    }));
  }

  showWorkers(workers, now) {
    workers.sort((a, b) => a.rank - b.rank || a.name.localeCompare(b.name));
    fillTable($("workers"), workers.map((worker) => {
      const rate = this.#rates.at(`worker ${worker.name}`, Number(worker.step), now);
      return [
        [worker.rank < 0 ? "" : String(worker.rank), "number"],
        [worker.name],
        [word(worker.state), stateClass(worker.state)],
        [worker.phase.toLowerCase()],
        [worker.step, "number"],
        [rate === null ? "" : rate.toFixed(1), "number"],
        [worker.appliedLogNumber, "number"],
        [worker.sync?.syncs ?? "", "number"],
        [worker.sync ? bytes(worker.sync.lastBytes) : "", "number"],
      ];
    }));
    const training = workers.filter((worker) => worker.state === "STATE_TRAINING").length;
    $("workers-text").textContent = `${workers.length}, of whom ${training} train`;
    const drifts = workers.map((worker) => worker.metrics?.drift).filter((drift) => drift !== undefined);
    $("no-drift").hidden = drifts.length > 0;
    if (drifts.length > 0) this.#drift.add(Math.max(...drifts.map(Number)), now);
  }

  // Null: there is no epoch.
  showPlan(plan) {
    const shards = plan?.shards ?? [];
    $("plan-text").textContent = plan
      ? `${Number(plan.flatElements).toLocaleString()} elements on ${shards.length} ranks, digest ${plan.digest}`
      : "none while no epoch runs";
    $("plan").replaceChildren(...shards.map((shard) => {
      const size = Number(shard.end) - Number(shard.begin);
      const part = element("span", shards.length <= 16 ? `${shard.rank}` : "");
      part.style.flex = `${size} 0 0`;
      part.style.background = `hsl(${shard.rank * 137.5 % 360} 55% 70%)`;
      part.title = `rank ${shard.rank}, ${shard.worker}: elements ${shard.begin} to ${shard.end}` +
        (shard.buddy ? `; copy with ${shard.buddy}` : "");
      return part;
    }));
  }

  // Null: the model is not known yet.
  showBuffers(preview) {
    const buffers = preview?.buffers ?? [];
    fillTable($("buffers"), buffers.map((buffer) => [
      [buffer.name],
      [buffer.type],
      [buffer.selection === "SELECTION_SYNCED" ? word(buffer.operation) : word(buffer.selection)],
      [buffer.selection === "SELECTION_SYNCED" ? buffer.rootWorker || (buffer.root?.rank ?? "") : ""],
      [buffer.selection === "SELECTION_SYNCED" ? schedule(buffer.schedule) : ""],
      [bytes(buffer.bytes), "number"],
    ]));
    $("buffers-text").textContent = preview
      ? `${preview.syncedBuffers} of ${preview.totalBuffers} are synchronised` +
        (buffers.length < Number(preview.totalBuffers) ? `; the first ${buffers.length} are shown` : "")
      : "unknown until a worker attends";
  }

  showRevisions(revisions) {
    fillTable($("revisions"), revisions.map((revision) => [
      [revision.revision, "number"],
      [word(revision.state), stateClass(revision.state)],
      [revision.state === "STATE_EFFECTIVE" ? revision.effectiveStep : "", "number"],
      [new Date(revision.createTime).toLocaleString()],
      [revision.author],
      [revision.reason],
    ]));
    $("policy-text").textContent = `revision ${revisions[0]?.revision ?? 0} is the newest`;
  }
}
