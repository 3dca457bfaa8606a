import { inJavaScript } from "./hints.js";
import { fromWire } from "./wire.js";

/** The fields of a {@link BothyError}. */
export interface ErrorFields {
  /** The stable name of the kind of error, such as `sandbox_paused`. */
  code: string;
  /** One sentence that says what is wrong. */
  detail: string;
  /** One sentence that says what to do about it. */
  hint?: string;
  /** The HTTP status, if a server answered. */
  status?: number;
  /** The id of the request, to find it in the server's log. */
  requestId?: string;
  /** How long the server asked to wait before trying again. */
  retryAfterSeconds?: number;
  /** The cause of this error. */
  cause?: unknown;
}

/** The parent of every error that this package throws. */
export class BothyError extends Error {
  /** The stable name of the kind of error. Match on this, not on the message. */
  readonly code: string;
  /** One sentence that says what is wrong. */
  readonly detail: string;
  /** One sentence that says what to do about it. */
  readonly hint?: string;
  /** The HTTP status, if a server answered. */
  readonly status?: number;
  /** The id of the request, to find it in the server's log. */
  readonly requestId?: string;
  /** How long the server asked to wait before trying again. */
  readonly retryAfterSeconds?: number;

  constructor(fields: ErrorFields) {
    super(fields.hint ? `${fields.detail} ${fields.hint}` : fields.detail, { cause: fields.cause });
    this.name = new.target.name;
    this.code = fields.code;
    this.detail = fields.detail;
    this.hint = fields.hint;
    this.status = fields.status;
    this.requestId = fields.requestId;
    this.retryAfterSeconds = fields.retryAfterSeconds;
  }

  /**
   * Whether the server, its host or the way to it failed or was full, not the task: a training run leaves such an
   * episode out instead of counting it as a failure.
   */
  get infrastructure(): boolean {
    return infrastructure.has(this.code) || (!(this.code in byCode) && (this.status ?? 0) >= 500);
  }

  /** Whether the same call may succeed if it is made again later. */
  get retryable(): boolean {
    return this.retryAfterSeconds !== undefined || retryable.has(this.code);
  }
}

/** The key is missing, unknown or expired. */
export class AuthenticationError extends BothyError {}
/** No API key was given and none was found on this machine. */
export class CredentialsError extends AuthenticationError {}
/** The key is valid but may not do this. */
export class ForbiddenError extends BothyError {}
/** The request itself is wrong. */
export class InvalidArgumentError extends BothyError {}

/** There is no such object, or it belongs to another project. */
export class NotFoundError extends BothyError {}
/** There is no such sandbox. */
export class SandboxNotFoundError extends NotFoundError {}
/** There is no such snapshot. */
export class SnapshotNotFoundError extends NotFoundError {}
/** There is no such template; the detail lists those that exist. */
export class TemplateNotFoundError extends NotFoundError {}
/** There is no project with this name, or it is not the caller's to see. */
export class ProjectNotFoundError extends NotFoundError {}
/** No such process was started through the API, or it has been forgotten. */
export class ProcessNotFoundError extends NotFoundError {}
/** There is no such code context in the sandbox. */
export class ContextNotFoundError extends NotFoundError {}
/** The program of an argument vector does not exist in the sandbox. */
export class CommandNotFoundError extends NotFoundError {}
/** There is no such file or folder inside the sandbox. */
export class FileNotFoundInSandboxError extends NotFoundError {}

/** The object is not in a state that allows this. */
export class ConflictError extends BothyError {}
/** The sandbox is paused; resume it first. */
export class SandboxPausedError extends ConflictError {}
/** The sandbox has ended; the detail says why. */
export class SandboxEndedError extends ConflictError {}
/** The sandbox is between two states; try again in a moment. */
export class SandboxNotReadyError extends ConflictError {}
/** The repository of a new sandbox was not cloned; the detail is git's last line. */
export class CloneFailedError extends BothyError {}
/** The command was killed because the request for it was given up. */
export class CommandCancelledError extends ConflictError {}
/** The call has begun, and was cut off before its outcome was known; it is not done twice. */
export class OutcomeUnknownError extends ConflictError {}
/** There is already something at this path inside the sandbox. */
export class FileExistsInSandboxError extends ConflictError {}

/** A file operation inside the sandbox failed. */
export class FileError extends BothyError {}
/** A folder is needed, and the path is something else. */
export class NotADirectoryInSandboxError extends FileError {}
/** A file is needed, and the path is a folder. */
export class IsADirectoryInSandboxError extends FileError {}
/** The user inside the sandbox may not do this with this file. */
export class PermissionDeniedError extends FileError {}
/** The sandbox's disk is full. */
export class DiskFullError extends FileError {}

/** The plan does not allow more of this. */
export class QuotaExceededError extends BothyError {}
/** The budget of the project, or of the sandbox and its forks, is used up (402). Raise the budget and resume what was paused. */
export class BudgetExceededError extends QuotaExceededError {}
/** The host is full at the moment. */
export class CapacityError extends BothyError {}
/** Too many requests in too short a time. */
export class RateLimitedError extends BothyError {}
/** The request or the answer is larger than allowed. */
export class TooLargeError extends BothyError {}
/** The server, or the sandbox's engine, cannot do this. */
export class UnsupportedError extends BothyError {}
/** It took longer than allowed. */
export class TimeoutError extends BothyError {}
/** The server could not be reached, or the connection broke. */
export class ConnectionError extends BothyError {}
/** The server failed. */
export class ServerError extends BothyError {}

type ErrorClass = new (fields: ErrorFields) => BothyError;

const retryable = new Set([
  "capacity",
  "connection_failed",
  "engine_failed",
  "guest_unreachable",
  "internal",
  "rate_limited",
  "sandbox_not_ready",
  "shutting_down",
  "store_unavailable",
  "timeout",
]);

const infrastructure = new Set([...retryable, "engine_unavailable", "misdirected_request", "outcome_unknown", "snapshot_damaged"]);
infrastructure.delete("sandbox_not_ready");

const byCode: Record<string, ErrorClass> = {
  unauthenticated: AuthenticationError,
  token_expired: AuthenticationError,
  missing_scope: ForbiddenError,
  invalid_argument: InvalidArgumentError,
  command_invalid: InvalidArgumentError,
  command_cancelled: CommandCancelledError,
  clone_failed: CloneFailedError,
  outcome_unknown: OutcomeUnknownError,
  user_not_found: InvalidArgumentError,
  template_invalid: InvalidArgumentError,
  not_found: NotFoundError,
  sandbox_not_found: SandboxNotFoundError,
  snapshot_not_found: SnapshotNotFoundError,
  template_not_found: TemplateNotFoundError,
  project_not_found: ProjectNotFoundError,
  process_not_found: ProcessNotFoundError,
  context_not_found: ContextNotFoundError,
  command_not_found: CommandNotFoundError,
  file_not_found: FileNotFoundInSandboxError,
  conflict: ConflictError,
  idempotency_mismatch: ConflictError,
  template_in_use: ConflictError,
  snapshot_in_use: ConflictError,
  sandbox_paused: SandboxPausedError,
  sandbox_ended: SandboxEndedError,
  sandbox_not_ready: SandboxNotReadyError,
  file_exists: FileExistsInSandboxError,
  path_invalid: FileError,
  not_a_directory: NotADirectoryInSandboxError,
  is_a_directory: IsADirectoryInSandboxError,
  permission_denied: PermissionDeniedError,
  disk_full: DiskFullError,
  quota_exceeded: QuotaExceededError,
  budget_exceeded: BudgetExceededError,
  capacity: CapacityError,
  rate_limited: RateLimitedError,
  too_large: TooLargeError,
  unsupported: UnsupportedError,
  timeout: TimeoutError,
  internal: ServerError,
  snapshot_damaged: ServerError,
  engine_failed: ServerError,
  engine_unavailable: ServerError,
  acceleration_unavailable: UnsupportedError,
  shutting_down: CapacityError,
  store_unavailable: CapacityError,
  guest_unreachable: ServerError,
};

const byStatus: Record<number, ErrorClass> = {
  400: InvalidArgumentError,
  401: AuthenticationError,
  403: ForbiddenError,
  404: NotFoundError,
  408: TimeoutError,
  409: ConflictError,
  413: TooLargeError,
  422: InvalidArgumentError,
  429: RateLimitedError,
  501: UnsupportedError,
  503: CapacityError,
  504: TimeoutError,
};

function errorClass(code: string, status: number): ErrorClass {
  return byCode[code] ?? byStatus[status] ?? (status >= 500 ? ServerError : BothyError);
}

/** Returns the error of a code that came otherwise than with an answer's status. */
export function errorOf(fields: ErrorFields): BothyError {
  return new (errorClass(fields.code, fields.status ?? 0))(fields);
}

interface Problem {
  code?: string;
  detail?: string;
  title?: string;
  hint?: string;
  requestId?: string;
}

function parseProblem(body: string): Problem {
  try {
    const value: unknown = JSON.parse(body);
    return typeof value === "object" && value !== null ? fromWire<Problem>(value) : {};
  } catch {
    return {};
  }
}

/**
 * Returns the seconds of a Retry-After header, which is a number or a date.
 *
 * @internal
 */
function retryAfter(headers: Headers, now = Date.now()): number | undefined {
  const value = headers.get("retry-after");
  if (!value) return undefined;
  const seconds = Number(value);
  if (!Number.isNaN(seconds)) return Math.max(0, seconds);
  const date = Date.parse(value);
  return Number.isNaN(date) ? undefined : Math.max(0, (date - now) / 1000);
}

/**
 * Makes the error for a failed response out of its body.
 *
 * @internal
 */
export function errorFromBody(status: number, headers: Headers, body: string): BothyError {
  const problem = parseProblem(body);
  const code = problem.code ?? `http_${status}`;
  const Class = errorClass(code, status);
  return new Class({
    code,
    status,
    detail: problem.detail ?? problem.title ?? `the server answered with HTTP status ${status}`,
    hint: problem.hint ? inJavaScript(problem.hint) : undefined,
    requestId: problem.requestId ?? headers.get("x-request-id") ?? undefined,
    retryAfterSeconds: retryAfter(headers),
  });
}

/**
 * Makes the error for a failure that arrived inside a stream.
 *
 * @internal
 */
export function errorFromProblem(problem: Partial<ErrorFields>): BothyError {
  const code = problem.code ?? "internal";
  const Class = errorClass(code, problem.status ?? 500);
  return new Class({ ...problem, code, detail: problem.detail ?? "the server reported a failure without saying which" });
}
