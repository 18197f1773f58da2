// Keeps the page up to date: one round of questions a second, and less while it is not looked at.
import * as api from "./api.js";
import {element, word} from "./format.js";
import {JobView, stateClass} from "./job_view.js";
import {PolicyEditor} from "./policy_editor.js";

const kRoundMs = 1000;
const $ = (id) => document.getElementById(id);

const view = new JobView();
const editor = new PolicyEditor(() => round());
let me = null;
let shown = "";  // the job's name
let seen = {};   // what slower parts were made from: asked again when it changes

const chosen = () => decodeURIComponent(location.hash.slice(1));

function showJobs(jobs) {
  $("jobs").replaceChildren(...jobs.map((job) => {
    const link = element("a", `${job.spec.name}: ${word(job.state)}`, stateClass(job.state));
    link.href = `#${encodeURIComponent(job.spec.name)}`;
    if (job.spec.name === shown) link.setAttribute("aria-current", "page");
    return link;
  }));
  $("no-job").hidden = jobs.length > 0;
  $("job").hidden = jobs.length === 0;
}

// What changes with epochs and policies, and not with steps.
async function showSlowParts(job) {
  const plan = `${job.epoch} ${job.state}`;
  const policy = `${job.policy.etag} ${job.policy.state} ${job.policy.effectiveStep} ${job.epoch} ${job.state}`;
  const orNull = (promise) => promise.catch((error) => {
    if (error.code === "failed_precondition") return null;
    throw error;
  });
  if (seen.plan !== plan) {
    view.showPlan(await orNull(api.getShardPlan(shown)));
    seen.plan = plan;
  }
  if (seen.policy !== policy) {
    const [revisions, preview] = await Promise.all([
      api.listRevisions(shown), orNull(api.previewPolicy(shown, undefined))]);
    view.showRevisions(revisions);
    view.showBuffers(preview);
    // Until a worker attends the model is not known: asked again then.
    seen.policy = preview ? policy : "";
  }
}

async function round() {
  me ??= await api.whoAmI();
  $("sign-in").hidden = true;
  $("who").textContent = me.name ? `${me.name} (${me.roles.join(", ")})` : "";
  const jobs = await api.listJobs();
  const wanted = jobs.find((job) => job.spec.name === chosen()) ?? jobs[0];
  if ((wanted?.spec.name ?? "") !== shown) {
    shown = wanted?.spec.name ?? "";
    seen = {};
    view.clear();
  }
  showJobs(jobs);
  if (!wanted) return;
  const [job, workers] = await Promise.all([api.getJob(shown), api.listWorkers(shown)]);
  const now = performance.timeOrigin + performance.now();
  view.showJob(job, now);
  view.showWorkers(workers, now);
  await showSlowParts(job);
  editor.follow(shown, job.policy, me.roles.includes("operator"));
}

async function keepUp() {
  try {
    await round();
    $("link").textContent = "live";
    $("link").className = "good";
  } catch (error) {
    $("link").textContent = error.message;
    $("link").className = "bad";
    if (error.code === "unauthenticated") {
      me = null;
      $("job").hidden = true;
      $("sign-in").hidden = false;
      $("sign-in-error").textContent = error.message;
    }
  }
  setTimeout(keepUp, document.hidden ? 10 * kRoundMs : kRoundMs);
}

$("sign-in").onsubmit = (event) => {
  event.preventDefault();
  api.setToken($("token").value);
};
keepUp();
