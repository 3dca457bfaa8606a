import type { FileType } from "./files.js";
import type { Network, NetworkMode } from "./network.js";
import type { TemplateRecipe } from "./recipe.js";

/** Where a sandbox is in its life. */
export type SandboxState = "starting" | "running" | "pausing" | "paused" | "resuming" | "stopping" | "stopped" | "failed";

/** Why a sandbox ended. */
export type EndReason = "terminated" | "timeout" | "out_of_memory" | "disk_full" | "exited" | "host_restart" | "host_lost" | "error";

/** What happens to a sandbox when its time is up. */
export type OnTimeout = "terminate" | "pause";

/** What becomes of a sandbox that runs when its host is lost. */
export type OnHostLoss = "pause" | "resume" | "fail";

/** What can be wrong with a sandbox that runs. */
export type HealthStatus = "out_of_memory" | "disk_full" | "too_many_processes" | "no_shell" | "no_such_user" | "no_working_directory";

/** A named choice of CPU, memory and disk. */
export type Size = "small" | "medium" | "large";

/** How a sandbox ended. */
export interface Ended {
  reason: EndReason;
  /** A sentence about it. */
  detail: string;
  at: Date;
}

/** A sandbox as the server described it last. */
export interface SandboxInfo {
  id: string;
  name?: string;
  state: SandboxState;
  template: string;
  engine: string;
  /** What runs its virtual machine; missing where it is none. */
  acceleration?: "kvm" | "emulated";
  /** What its kernel calls itself. */
  kernel?: string;
  cpu: number;
  memoryMb: number;
  diskMb: number;
  network: Network;
  createdAt: Date;
  startedAt?: Date;
  /** When its time is up; undefined where it has no limit. */
  expiresAt?: Date;
  /** The time that it was given; 0 means none. */
  timeoutSeconds: number;
  onTimeout: OnTimeout;
  /** After how many idle seconds it is paused. */
  idleSeconds?: number;
  autoResume?: boolean;
  /** How often a checkpoint is taken of it while it runs, in seconds; missing when never. */
  checkpointSeconds?: number;
  /** When the last checkpoint was taken; missing when none was. */
  checkpointAt?: Date;
  /** What becomes of it, where it runs, when its host is lost. */
  onHostLoss: OnHostLoss;
  env?: Record<string, string>;
  /** What its secrets are called. Their values are never told. */
  secretNames?: string[];
  metadata?: Record<string, string>;
  /** The snapshot that it was started from; of a fork, the last one of its parent's state. */
  parentSnapshotId?: string;
  /** The sandbox that it is a copy of, by a fork or from a snapshot of it. */
  parentSandboxId?: string;
  /** When the state that it began with was its parent's. */
  forkedAt?: Date;
  /** What it and its forks may spend; missing where there is no bound. */
  budget?: number;
  /** The sandbox that got the budget. */
  budgetRoot?: string;
  /** The labels that its host must have. */
  hostLabels?: Record<string, string>;
  /** How much of it came back when it was last woken. */
  resumed?: Resumed;
  /** The last time that it lost its host and was paused. */
  hostLoss?: HostLoss;
  /** What is wrong with the sandbox itself, as the last command met it. Lists have it of sandboxes on the host that answers. */
  health?: Health;
  /** Set once it has ended. */
  ended?: Ended;
}

/** What the last command met that was wrong with the sandbox itself. */
export interface Health {
  status: HealthStatus;
  /** What the caller of that command was told. */
  detail: string;
  /** What to do about it. */
  hint?: string;
  at: Date;
}

/** How a sandbox lost its host, and what has been done about it. */
export interface HostLoss {
  /** The host that was lost; missing if the server is alone. */
  host?: string;
  at: Date;
  /** The snapshot that it was paused at. */
  snapshotId: string;
  /** How old that was then, in seconds: what happened in that time is lost. */
  ageSeconds: number;
  /** How many attempts to resume it have failed. */
  resumeAttempts?: number;
  /** When the next attempt is made; missing when none is. */
  nextResumeAt?: Date;
  /** Why the last attempt failed. */
  problem?: string;
}

/** What a resume brought back. */
export interface Resumed {
  snapshotId: string;
  /** `memory` when everything continued where it was, `files` when the processes are gone. */
  kind: SnapshotKind;
  /** Why the processes are gone. */
  detail?: string;
  at: Date;
}

/** A credential that the gateway puts in place on the way to `hosts`. It never enters the sandbox. */
export interface Secret {
  name: string;
  value: string;
  /** The host names to which it may be sent. */
  hosts: string[];
  /** The only HTTP header that carries it. Default: `Authorization` and other usual headers for credentials. */
  header?: string;
  /** Set the header in every request to the hosts, whatever the request has there. Nothing stands for the value inside. */
  override?: boolean;
  /** The value is none to hide: a host may send it back. */
  allowEcho?: boolean;
}

/** What a new sandbox is to be. Everything is optional. */
export interface CreateParams {
  /** Default `python-3.12`. */
  template?: string;
  /** Start from a snapshot instead of a template. */
  snapshotId?: string;
  name?: string;
  /** A named choice instead of `cpu`, `memoryMb` and `diskMb`. */
  size?: Size;
  /** Default 1. */
  cpu?: number;
  /** Default 512. */
  memoryMb?: number;
  /** Default 2048. */
  diskMb?: number;
  /** Default `"off"`. */
  network?: Network;
  /** How long it may live. Default 600; 0 means for ever, where the plan allows it. */
  timeoutSeconds?: number;
  /** Default `terminate`. */
  onTimeout?: OnTimeout;
  /** Pause it after so long without work. */
  idleSeconds?: number;
  /** Wake it, when it is paused, by the next call. */
  autoResume?: boolean;
  /**
   * How often a checkpoint is taken of it while it runs, in seconds, 10 or more: the loss of its host takes no more
   * with it than what happened since. Default 0, which is never.
   */
  checkpointSeconds?: number;
  /**
   * What becomes of it, where it runs, when its host is lost. Default `pause`: at its last snapshot that is not
   * lost as well. `resume` has another host resume it from that at once, and `fail` has it end.
   */
  onHostLoss?: OnHostLoss;
  /** Set for every command. */
  env?: Record<string, string>;
  secrets?: Secret[];
  /** Labels, to find it by. */
  metadata?: Record<string, string>;
  /** Which technology isolates it: `gvisor`, `microvm`, or `auto`, which leaves it to the server's policy. */
  engine?: string;
  /** Refuse a virtual machine that would be emulated. */
  requireAcceleration?: boolean;
  /** What it and its forks may spend, in the currency of the server's rates, before they are paused. */
  budget?: number;
  /** Only on a host of the cluster with these labels, all of them. */
  hostLabels?: Record<string, string>;
  /** A git repository to clone below `/workspace` before it is returned, as `URL#REF`. The network must allow its host. */
  repo?: string;
  /** The token of a private one. The gateway adds it to requests to the repository's host; it never enters the sandbox. */
  repoToken?: string;
}

/** How a fleet of sandboxes is made. */
export interface FleetParams {
  /**
   * Your name for it. For a day, a call with the same tag and parameters, also by another program, returns the same
   * sandboxes, tries those again that failed, and adds what a larger `count` asks for.
   */
  tag?: string;
  /** How many are made, or ended, at the same time. Default 16. */
  concurrency?: number;
}

/** What to end: sandboxes or their ids, or all that have not ended and have this metadata. */
export type EndParams = { sandboxes: Iterable<{ id: string } | string>; metadata?: undefined } | { sandboxes?: undefined; metadata: Record<string, string> };

/** What may change while a sandbox lives. What is left out stays as it is. */
export interface UpdateParams {
  /** From now on. */
  timeoutSeconds?: number;
  onTimeout?: OnTimeout;
  idleSeconds?: number;
  /** In seconds; 0 for never. */
  checkpointSeconds?: number;
  onHostLoss?: OnHostLoss;
  metadata?: Record<string, string>;
  name?: string;
  network?: Network;
  /** All that it has from then on. */
  secrets?: Secret[];
  /** What it and its forks may spend; 0 lifts the bound. */
  budget?: number;
}

/** Which sandboxes to list. */
export interface ListParams {
  state?: SandboxState | SandboxState[];
  /** Only those that have not ended, as `bothy ls` shows them; unless `state` says otherwise. */
  live?: boolean;
  name?: string;
  metadata?: Record<string, string>;
  /** The size of a page. */
  limit?: number;
  /** The `nextCursor` of the page before. */
  cursor?: string;
}

/** How copies of a sandbox differ from it. */
export interface ForkParams {
  name?: string;
  timeoutSeconds?: number;
  env?: Record<string, string>;
  metadata?: Record<string, string>;
  network?: Network;
  /** Give the copies the original's secrets, too. */
  secrets?: boolean;
  /** Your name for this call. For a day, a call with the same tag and parameters returns the same copies. */
  tag?: string;
}

/** How a paused sandbox comes back. */
export interface ResumeParams {
  /** Bring memory and processes back, which is the default. If false, it restarts with its files. */
  memory?: boolean;
}

/** How much a snapshot holds: memory, processes and files, or files alone. */
export type SnapshotKind = "memory" | "files";

/** Where the files of a snapshot are: on the disk of the server's host alone, or in object storage as well. */
export type Durable = "host" | "store";

/** A frozen sandbox. */
export interface Snapshot {
  id: string;
  sandboxId: string;
  /** The snapshot before it in the sandbox's history. */
  parentId?: string;
  name?: string;
  template: string;
  kind: SnapshotKind;
  sizeBytes: number;
  createdAt: Date;
  durable: Durable;
  /** Whether the server took it by itself, and deletes it once there is a newer one. */
  checkpoint?: boolean;
  /** Why it holds files only, where memory was asked for or imported. */
  detail?: string;
}

/** Something that happened. */
export interface BothyEvent {
  /** Grows with time. */
  id: number;
  time: Date;
  /** Such as `sandbox.created`. */
  type: string;
  sandboxId?: string;
  data?: Record<string, string>;
}

/** What a template is. */
export interface Template {
  version: number;
  name: string;
  description?: string;
  digest: string;
  sizeBytes: number;
  createdAt: Date;
  /** Set for every command. */
  env?: Record<string, string>;
  /** Where commands start. */
  cwd?: string;
  /** The command of the image that it was made from. Nothing starts by itself in a sandbox. */
  entrypoint?: string[];
  /** What it was made from. */
  source?: string;
  /** The versions of what matters inside. */
  packages?: Record<string, string>;
  /** What runCode offers. */
  languages?: string[];
  /** The tag of the name, where it is not `latest`. */
  tag?: string;
  /** The project that owns it, where it is not for all. */
  project?: string;
  /** What it has of running processes: they start in this size on this engine. */
  memory?: { snapshotId: string; sizeBytes: number; engine: string; cpu: number; memoryMb: number; diskMb: number };
}

/** What becomes of a sandbox as a template. */
export interface TemplateFromParams {
  /** What the template is for. */
  description?: string;
  /** Keep the running processes, too. */
  memory?: boolean;
}

/** What a template is made from: an image, or, without one, the built-in template of that name. */
export interface TemplateParams {
  name: string;
  /** An OCI image. */
  image?: string;
  /** Build again even if the template exists. */
  force?: boolean;
}

/** How a template is made from a recipe or a Dockerfile. */
export interface TemplateBuildParams {
  /** The template's name, with a tag or without. */
  name: string;
  /** What it is made from, such as `Template("python-3.12").pip("pandas")`. */
  recipe?: TemplateRecipe;
  /** The text of a Dockerfile that it is made from. Default: that of the context. */
  dockerfile?: string;
  /**
   * What `copy` and COPY take files from: a folder, or files by their paths, less what `.dockerignore` names,
   * or a Blob that is a tar. For a recipe it is the current folder.
   */
  context?: string | URL | Blob | Readonly<Record<string, Blob>>;
  /** The path of the Dockerfile in the context, instead of `Dockerfile`. */
  file?: string;
  /** Values of the Dockerfile's ARGs. */
  args?: Record<string, string>;
  /** The stage to make, instead of the last. */
  target?: string;
  /** What `RUN --mount=type=secret` shows, by id. They stay in no layer, no cache and no log. */
  secrets?: Record<string, string>;
  /** Logins for the images that FROM and COPY --from name. They are in no record and no log. */
  registries?: { host: string; username: string; password: string }[];
  /** What commands may reach. Default: `restricted` with all presets. */
  network?: Network;
  /** The engine that runs commands. */
  engine?: string;
  /** The number of processors for commands. Default 1. */
  cpu?: number;
  /** Their memory, in MiB. Default 2048, or what the plan allows. */
  memoryMb?: number;
  /** Their disk, in MiB. Default 16384, or what the plan allows. */
  diskMb?: number;
  /** How long each command may take. Default 3600. */
  timeoutSeconds?: number;
  /** Run every step again. */
  noCache?: boolean;
  /** Where a command fails, leave a sandbox for half an hour with what there was before it: the build's `sandboxId`. */
  shellOnFailure?: boolean;
}

/** An image in a registry that was made of a template. */
export interface PushedTemplate {
  /** Where it is, with its digest. */
  reference: string;
  /** That of the image's manifest. */
  digest: string;
  /** The size of the image, as it was compressed. */
  sizeBytes: number;
}

/** Where a build is in its life. */
export type BuildState = "queued" | "running" | "succeeded" | "failed" | "cancelled";

/** One making of a template from a recipe or a Dockerfile. */
export interface Build {
  id: string;
  name: string;
  state: BuildState;
  createdAt: Date;
  startedAt?: Date;
  endedAt?: Date;
  /** How many steps it has, how many are done, and how many of those were taken from an earlier build. */
  steps: number;
  done: number;
  cached: number;
  /** About the Dockerfile. */
  warnings?: string[];
  /** That of the template's image, where the build has succeeded. */
  digest?: string;
  /** Why the build failed, and what to do about it. */
  code?: string;
  error?: string;
  hint?: string;
  /** The sandbox that `shellOnFailure` has left. */
  sandboxId?: string;
}

/** One step of a build. */
export interface BuildEvent {
  step: string;
  message?: string;
  percent?: number;
  /** Set on the last event of a build that succeeded. */
  template?: Template;
  error?: string;
}

/** A file that differs between two snapshots. */
export interface FileChange {
  path: string;
  change: "added" | "changed" | "removed";
  /** What it is, or was before it was removed. */
  type: FileType;
  /** The bytes of its content. */
  size: number;
}

/** The files that differ between two snapshots, in the order of their paths. */
export interface SnapshotChanges {
  items: FileChange[];
  /** There are more than the limit let through. */
  truncated: boolean;
}

/** Which snapshots to list. */
export interface SnapshotListParams {
  /** Only those of one sandbox. */
  sandboxId?: string;
  name?: string;
  limit?: number;
  cursor?: string;
}

/** One power of a key. */
export type Scope = "sandboxes:read" | "sandboxes:write" | "templates:read" | "templates:write" | "metrics:read" | "admin";

/** A key. Its secret is there only in the answer that creates it. */
export interface Token {
  id: string;
  name?: string;
  project: string;
  scopes: Scope[];
  createdAt: Date;
  expiresAt?: Date;
  lastUsedAt?: Date;
  /** The key itself, only where it has just been made. */
  key?: string;
}

/** What a sandbox uses now. */
export interface Metrics {
  time: Date;
  /** How many processors it may use. */
  cpuCount: number;
  /** What it has used of them since it was started or last resumed. */
  cpuSeconds: number;
  memoryBytes: number;
  memoryLimitBytes: number;
  diskBytes: number;
  diskLimitBytes: number;
  processes: number;
  egressBytes: number;
  ingressBytes: number;
  /** What keeps it from being paused after `idleSeconds`: `command`, `request`, `connection` or `cpu`. */
  heldAwakeBy?: string[];
  /** For how long it has been idle. */
  idleForSeconds?: number;
}

/** The latest measurement of a sandbox that runs. */
export interface SandboxMetrics extends Metrics {
  sandboxId: string;
  /** How many processors it has used on average since it was measured before; null at its first measurement. */
  cpuUsed: number | null;
}

/** One kind of sandbox that a server holds ready. */
export interface HostPoolItem {
  template: string;
  engine: string;
  cpus: number;
  memoryMb: number;
  diskMb: number;
  /** How many nobody has asked for yet. */
  ready: number;
  /** What the snapshot takes up from which they are made; 0 where there is none. */
  goldenBytes: number;
}

/** What the machine that a server runs on has, and what the server makes of it. */
export interface Host {
  version: string;
  cpus: number;
  memoryBytes: number;
  freeMemoryBytes: number;
  diskBytes: number;
  freeDiskBytes: number;
  /** The sandboxes of all projects that have not ended, by state. */
  sandboxes: Record<string, number>;
  /** How many there may be; null is any number. */
  maxSandboxes: number | null;
  /** What is held ready so that sandboxes start fast. */
  pool: { ready: number; memoryBytes: number; spares: number; golden: number; goldenBytes: number; contents: HostPoolItem[] };
  /** One that is not open yet is opened when a sandbox first needs it. */
  engines: { name: string; open: boolean; build?: string; kernel?: string; snapshots: boolean; acceleration?: "kvm" | "emulated" }[];
  /** How long requests to create a sandbox took: how many at most so long, and longer than those before. */
  creations: { upToSeconds: number | null; count: number }[];
  /** What the checks of `bothy doctor` that start no sandbox found, at most a minute ago. */
  findings: { name: string; status: "ok" | "warn" | "fail"; detail: string; fix?: string }[];
}

/** A project's limits, and how much is in use. A limit of null means no limit. */
export interface Limits {
  plan: string;
  sandboxes: { limit: number | null; used: number };
  snapshots: { limitMb: number | null; usedMb: number };
  /** The project's own. */
  templates: { limitMb: number | null; usedMb: number };
  /** What one sandbox may have at most. */
  sandbox: { cpu: number; memoryMb: number; diskMb: number; timeoutSeconds: number; networks: NetworkMode[] };
  /** What may be spent in a month, and what has been; missing where there is no bound. */
  budget?: Budget;
  /** How many sandboxes may be made in a minute; missing where there is no limit. */
  createsPerMinute?: number;
}

/** What may be spent, and what has been. */
export interface Budget {
  limit: number;
  used: number;
  currency: string;
  /** When that begins again. */
  resetsAt?: Date;
}

/** What owns sandboxes, snapshots and keys. */
export interface Project {
  /** Its name. */
  id: string;
  plan: string;
  createdAt: Date;
  /** What it may spend in a month; missing where there is no bound. */
  budget?: Budget;
}

/** An environment of Claude Managed Agents that the server works for. */
export interface AgentAttachment {
  id: string;
  environment: string;
  /** The service that it belongs to. */
  url: string;
  /** What each session's sandbox is made from, without the values of secrets. */
  sandbox: CreateParams;
  /** The tools of the agent's own. */
  tools?: { name: string; command: string }[];
  maxSessions: number;
  createdAt: Date;
  state: "waiting" | "working" | "failing";
  /** Why it fails. */
  lastError?: string;
  sessions: AgentSession[];
}

/** A session of managed agents that the server has worked for. */
export interface AgentSession {
  id: string;
  /** Missing until a tool is first called. */
  sandboxId?: string;
  /** A piece of its work is claimed. */
  working: boolean;
  lastError?: string;
}

/** Where the project's events are sent. */
export interface Webhook {
  id: string;
  name?: string;
  url: string;
  /** The types of events that are sent; missing when all are. */
  events?: string[];
  enabled: boolean;
  /** What requests look like: `standard`, or `e2b` for one that was made by E2B's API. */
  format: string;
  /** What requests are signed with, only in the answer that makes the webhook. */
  secret?: string;
  createdAt: Date;
  /** The last event that was dealt with. */
  lastEventId: number;
  /** When the receiver last took an event. */
  deliveredAt?: Date;
  /** Since when deliveries fail; missing while they do not. */
  failingSince?: Date;
  /** Why the last attempt failed. */
  lastError?: string;
  /** When it is tried again. */
  nextAttemptAt?: Date;
  /** Why the server has disabled it. */
  disabledReason?: string;
  /** How many events the receiver refused, and were given up. */
  refused?: number;
}

/** What came of the test of a webhook. */
export interface WebhookTest {
  /** The HTTP status that the receiver answered; missing when it did not. */
  status?: number;
  /** Why the event counts as not delivered; missing when it was. */
  error?: string;
  milliseconds: number;
}

/** Something that somebody did, or tried to do. What is not known is missing. */
export interface AuditRecord {
  /** Grows by one from record to record. */
  id: number;
  /** When it was asked for. */
  time: Date;
  /** The project of the caller. */
  project?: string;
  /** The key that was used, and its name then. */
  tokenId?: string;
  tokenName?: string;
  /** What was done: an operation of the API, such as `create-sandbox`, or `mcp:` and the name of a tool. */
  action: string;
  /** The sandbox that it was done to, or that it made. */
  sandboxId?: string;
  /** What else it was about: a file, process, snapshot, token, project or template. */
  object?: string;
  /** What was run, shortened, without what looks like a key. */
  command?: string;
  /** The address that the request came from. */
  remote?: string;
  /** The request's id, as in the server's log. */
  requestId?: string;
  /** The HTTP status of the answer. */
  status: number;
  /** Why it failed or was refused; missing where it was done. */
  code?: string;
  durationMs: number;
  /** The link to a port by which somebody came, which the key made. */
  linkId?: string;
  /** How many refused attempts, or requests to ports, it stands for, where they came too quickly for one each. */
  count?: number;
  /** The hash of this record and the one before. */
  hash?: string;
}

/** What became of checking the audit. */
export interface AuditCheck {
  /** Whether it is as it was written. */
  ok: boolean;
  /** How many records were checked, and the ids of the first and the last of them. */
  records: number;
  first: number;
  last: number;
  /** The hash of the last record, to keep elsewhere and check against later. */
  head: string;
  /** The first record that is not as it was written, and what is wrong with it. */
  broken?: number;
  detail?: string;
}

/** Usage, and what it costs by the server's rates. */
export interface Usage {
  /** Virtual CPUs that sandboxes had, times the seconds for which they ran. */
  vcpuSeconds: number;
  /** CPU time that they really used. */
  cpuSeconds: number;
  /** MiB of memory that they had, times the seconds for which they ran. */
  memoryMbSeconds: number;
  egressBytes: number;
  ingressBytes: number;
  /** MiB that snapshots took up, times seconds. */
  snapshotMbSeconds: number;
  /** MiB that templates took up, times seconds. */
  templateMbSeconds: number;
  cost: number;
}

/** The usage of one group. What it was not grouped by is missing. */
export interface UsageItem extends Usage {
  /** The day, in UTC, as `2026-01-31`. */
  day?: string;
  /** When the hour begins, as RFC 3339. */
  hour?: string;
  project?: string;
  template?: string;
  sandbox?: string;
  /** The metadata that was grouped by; an empty value stands for none. */
  labels?: Record<string, string>;
}

/** What was used between two whole hours, in groups. */
export interface UsageReport {
  from: Date;
  to: Date;
  groupBy: string[];
  /** The currency of every cost. */
  currency: string;
  items: UsageItem[];
  total: Usage;
  /** Up to when everything is counted. */
  asOf: Date;
}

/** A link to a port of a sandbox that works without a key. */
export interface Link extends LinkInfo {
  /** The link, which is shown once. To a webhook's, append the path that is called. */
  url: string;
}

/** How a link is used: opened in a browser, called by programs, or by clients of the Chrome DevTools Protocol. */
export type LinkKind = "browser" | "webhook" | "cdp";

/** A link to a port of a sandbox. It ends with its sandbox, and with the key that created it. */
export interface LinkInfo {
  /** By which it is revoked. */
  id: string;
  sandboxId: string;
  port: number;
  kind: LinkKind;
  /** The server sees the link's host name, instead of `localhost` and its port. */
  keepHost?: boolean;
  /** The key that made it, and its name then. */
  tokenId: string;
  tokenName?: string;
  createdAt: Date;
  /** From when on it is refused. */
  expiresAt: Date;
}

/** A piece of output of one of the sandbox's commands. */
export interface LogEntry {
  pid: number;
  stream: "stdout" | "stderr" | "pty";
  /** The output. Bytes that are not UTF-8 arrive in base64, with the encoding `base64`. */
  data: string;
  encoding?: "base64";
  /** The position of the first byte in the whole output of the command. */
  offset: number;
}

/** The output that a sandbox still holds. */
export interface Logs {
  items: LogEntry[];
  /** True where output was dropped. */
  truncated: boolean;
}

/** What was moved. */
export interface TransferResult {
  /** How many files. */
  files: number;
  /** Their size in bytes. */
  bytes: number;
  /**
   * What was left out, as paths below the folder: devices and the like, and, in
   * a download, links that point out of the folder.
   */
  skipped: string[];
}
