/**
 * The JavaScript and TypeScript SDK of Bothy.
 *
 * @packageDocumentation
 */
export { Bothy, type RequestOptions, type UsageOptions } from "./client.js";
export { Sandbox, type Connection, type Endpoint, type LinkOptions, type WaitOptions } from "./sandbox.js";
export { Sandboxes } from "./sandboxes.js";
export { Snapshots, type ExportOptions, type ImportOptions } from "./snapshots.js";
export { Templates, type BuildOptions, type PushOptions } from "./templates.js";
export { Template, TemplateRecipe, type CopyOptions, type Ready, type StartOptions } from "./recipe.js";
export { Projects, type ProjectParams } from "./projects.js";
export { Tokens, type TokenParams } from "./tokens.js";
export { Agents, type AttachParams } from "./agents.js";
export { Webhooks, type WebhookParams } from "./webhooks.js";
export * from "./errors.js";
export { CommandError, ExecResult } from "./exec.js";
export type { Command, CommandOptions, ExecEvent, ExecOptions, ExecResultFields, FinalEvent, OutputEvent } from "./exec.js";
export { Process, type ProcessInfo, type SignalName } from "./process.js";
export { Terminal, type TerminalOptions } from "./terminal.js";
export { Browser, type BrowserOptions } from "./browser.js";
export { CodeFailedError, CodeResult, Contexts } from "./code.js";
export { Shell, ShellResult } from "./shell.js";
export type { ShellExecOptions } from "./shell.js";
export type { CodeContext, CodeError, CodeOutput, CodeResultFields, Language, RunCodeOptions } from "./code.js";
export { Files } from "./files.js";
export type { ArchiveOptions, FileContent, FileEvent, FileInfo, FileOptions, FileType, ReadOptions, WriteOptions } from "./files.js";
export { Forward, type ForwardOptions } from "./forward.js";
export type { AuditOptions } from "./audit.js";
export type { EventOptions } from "./events.js";
export type { Network, NetworkDecision, NetworkMode, NetworkPolicy } from "./network.js";
export { PageList, type Page } from "./page.js";
export { EventStream, type BothyOptions, type CallOptions } from "./transport.js";
export type * from "./types.js";
export { VERSION } from "./version.js";
