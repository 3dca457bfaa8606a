// Package acp stands between an editor and a coding agent that speaks the Agent Client
// Protocol, where the agent runs in a sandbox. It passes the messages on, carries the
// project's folder in before the agent works in it and out when a turn is done, and keeps
// the agent from reading or writing any other file through the editor.
package acp
