// The coordinator's API, as JSON over HTTP.

const kTokenKey = "lockstep-token";

export class ApiError extends Error {
  // `code`: as gRPC names it: "aborted", "unauthenticated"; "unavailable" also if there was no answer.
  constructor(code, message) {
    super(message);
    this.code = code;
  }
}

export function setToken(token) {
  sessionStorage.setItem(kTokenKey, token);
}

async function ask(path, options) {
  const token = sessionStorage.getItem(kTokenKey);
  const headers = {"Content-Type": "application/json"};
  if (token) headers.Authorization = `Bearer ${token}`;
  let response;
  try {
    response = await fetch(path, {...options, headers, cache: "no-store"});
  } catch {
    throw new ApiError("unavailable", "the coordinator does not answer");
  }
  const body = await response.json().catch(() => null);
  if (response.ok && body !== null) return body;
  throw new ApiError(body?.code ?? "unknown", body?.message ?? `HTTP status ${response.status}`);
}

const call = (method, request) =>
  ask(`/lockstep.v1.${method}`, {method: "POST", body: JSON.stringify(request)});

// {name, roles}
export const whoAmI = () => ask("/whoami");

export async function listJobs() {
  return (await call("JobService/ListJobs", {})).jobs;
}
export async function getJob(job) {
  return (await call("JobService/GetJob", {job})).job;
}
export async function listWorkers(job) {
  const workers = [];
  let pageToken = "";
  do {
    const page = await call("JobService/ListWorkers", {job, pageToken});
    workers.push(...page.workers);
    pageToken = page.nextPageToken;
  } while (pageToken);
  return workers;
}
export const getShardPlan = (job) => call("JobService/GetShardPlan", {job});
export async function listRevisions(job) {
  return (await call("SyncPolicyService/ListSyncPolicyRevisions", {job, pageSize: 50})).revisions;
}
export const previewPolicy = (job, policy) =>
  call("SyncPolicyService/PreviewSyncPolicy", {job, policy, pageSize: 1000});
// `change`: {policy, etag, reason, validateOnly}
export async function updatePolicy(job, change) {
  return (await call("SyncPolicyService/UpdateSyncPolicy", {job, ...change})).revision;
}
