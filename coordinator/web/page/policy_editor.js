// Edits a policy: draft, preview with a diff, and a change that nobody else's is lost by.
import {previewPolicy, updatePolicy} from "./api.js";
import {bytes, element} from "./format.js";

const $ = (id) => document.getElementById(id);
const kMoments = [
  ["atStart", "at start"], ["beforeForward", "before a forward"], ["afterStep", "after a step"],
  ["beforeEvaluation", "before an evaluation"], ["beforeCheckpoint", "before a checkpoint"],
];

// Without what has its default, which is what users write.
export function withoutDefaults(value) {
  if (Array.isArray(value)) return value.map(withoutDefaults);
  if (value === null || typeof value !== "object") return value;
  return Object.fromEntries(Object.entries(value)
    .map(([key, inner]) => [key, withoutDefaults(inner)])
    .filter(([key, inner]) => !(inner === null || (inner === "0" && key !== "rank") ||
      inner === "OPERATION_UNSPECIFIED" || (Array.isArray(inner) && inner.length === 0))));
}

export const policyText = (policy) => JSON.stringify(withoutDefaults(policy), null, 2);

// [[" " | "-" | "+", line], ...] by the longest common subsequence.
export function diffLines(before, after) {
  const a = before.split("\n"), b = after.split("\n");
  const length = Array.from({length: a.length + 1}, () => new Uint32Array(b.length + 1));
  for (let i = a.length - 1; i >= 0; --i) {
    for (let j = b.length - 1; j >= 0; --j) {
      length[i][j] = a[i] === b[j] ? length[i + 1][j + 1] + 1 : Math.max(length[i + 1][j], length[i][j + 1]);
    }
  }
  const lines = [];
  let i = 0, j = 0;
  while (i < a.length || j < b.length) {
    if (i < a.length && j < b.length && a[i] === b[j]) {
      lines.push([" ", a[i++]]);
      ++j;
    } else if (j >= b.length || (i < a.length && length[i + 1][j] >= length[i][j + 1])) {
      lines.push(["-", a[i++]]);
    } else {
      lines.push(["+", b[j++]]);
    }
  }
  return lines;
}

export class PolicyEditor {
  #job = "";
  #base = null;  // the revision that the draft began from
  #newest = null;

  constructor(onApplied) {
    $("edit").onclick = () => this.#begin(this.#newest);
    $("cancel").onclick = () => this.close();
    $("preview").onclick = () => this.#guard(() => this.#preview());
    $("rebase").onclick = () => this.#begin(this.#newest);
    $("draft").oninput = () => this.#forgetPreview();
    $("editor").onsubmit = (event) => {
      event.preventDefault();
      this.#guard(async () => {
        await this.#apply();
        await onApplied();
      });
    };
  }

  // The job that is shown, and its newest revision.
  follow(job, newest, mayEdit) {
    if (job !== this.#job) this.close();
    this.#job = job;
    this.#newest = newest;
    $("edit").hidden = !mayEdit || !$("editor").hidden;
    if (this.#base && newest.etag !== this.#base.etag) this.#offerRebase();
  }

  close() {
    this.#base = null;
    $("editor").hidden = true;
    $("editor-error").textContent = "";
    $("rebase").hidden = true;
  }

  #begin(revision) {
    this.#base = revision;
    $("draft").value = policyText(revision.policy);
    $("base").textContent = `from revision ${revision.revision}`;
    $("editor").hidden = false;
    $("edit").hidden = true;
    $("editor-error").textContent = "";
    $("rebase").hidden = true;
    this.#forgetPreview();
    $("draft").focus();
  }

  #offerRebase() {
    $("rebase").textContent = `Somebody made revision ${this.#newest.revision} meanwhile: begin again from it`;
    $("rebase").hidden = false;
  }

  #forgetPreview() {
    $("apply").disabled = true;
    $("preview-result").hidden = true;
  }

  #draft() {
    try {
      return JSON.parse($("draft").value);
    } catch (error) {
      throw new Error(`The draft is no JSON: ${error.message}`);
    }
  }

  async #guard(work) {
    $("editor-error").textContent = "";
    try {
      await work();
    } catch (error) {
      $("editor-error").textContent = error.message;
      this.#forgetPreview();
    }
  }

  async #preview() {
    const policy = this.#draft();
    // As the coordinator reads the draft: with all fields, in their order.
    const checked = await updatePolicy(this.#job, {policy, etag: this.#base.etag, validateOnly: true});
    const [before, after] = await Promise.all([
      previewPolicy(this.#job, this.#base.policy), previewPolicy(this.#job, policy)]);
    const lines = diffLines(policyText(this.#base.policy), policyText(checked.policy));
    $("diff").replaceChildren(...lines.map(([sign, line]) =>
      element(sign === "+" ? "ins" : sign === "-" ? "del" : "span", `${sign} ${line}\n`)));
    const cost = (preview, moment) => `${preview[moment]?.buffers ?? 0} buffers, ${bytes(preview[moment]?.bytes ?? 0)}`;
    $("costs").textContent = `Synchronised: ${before.syncedBuffers} -> ${after.syncedBuffers} of ${after.totalBuffers} buffers. ` +
      kMoments.filter(([moment]) => cost(before, moment) !== cost(after, moment))
        .map(([moment, name]) => `${name}: ${cost(before, moment)} -> ${cost(after, moment)}`).join("; ");
    $("warnings").replaceChildren(...after.warnings.map((warning) => element("li", warning, "warn")));
    $("preview-result").hidden = false;
    $("apply").disabled = false;
  }

  async #apply() {
    const change = {policy: this.#draft(), etag: this.#base.etag, reason: $("reason").value, author: "web page"};
    await updatePolicy(this.#job, change);
    $("reason").value = "";
    this.close();
  }
}
