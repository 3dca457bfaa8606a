// Package acp is a relay between an editor and a coding agent in a sandbox that speak the Agent
// Client Protocol. It forwards the messages, copies the project's folder in before the agent
// works in it and out after each turn, and keeps the agent from reading or writing any other
// file through the editor.
package acp
