package bothy

import (
	"context"
	"time"
)

// AgentsURL is where the queues of Claude Managed Agents are.
const AgentsURL = "https://api.anthropic.com"

// MaxAgentSessions is how many sessions of an attachment may be worked for at once.
const MaxAgentSessions = 100

// AgentState says how it goes with an attachment.
type AgentState string

// The states of an attachment.
const (
	// AgentsWaiting asks the queue for work.
	AgentsWaiting AgentState = "waiting"
	// AgentsWorking has sessions that it works for.
	AgentsWorking AgentState = "working"
	// AgentsFailing means that the queue cannot be reached or refuses the environment key, or that
	// the API key that attached it has ended.
	// LastError says why.
	AgentsFailing AgentState = "failing"
)

// AgentAttachment has the server do the work of a self-hosted environment of Claude
// Managed Agents: each session gets a sandbox, in which its tools run.
type AgentAttachment struct {
	ID string `json:"id"`
	// Environment is the environment's id at URL.
	Environment string `json:"environment"`
	URL         string `json:"url"`
	// Sandbox is what each session's sandbox is made from. The values of its secrets
	// are left out.
	Sandbox SandboxCreate `json:"sandbox"`
	// Tools are the custom tools that run in the sandbox.
	Tools []AgentTool `json:"tools,omitempty"`
	// MaxSessions bounds the sessions that are worked for at once.
	MaxSessions int            `json:"max_sessions"`
	CreatedAt   time.Time      `json:"created_at"`
	State       AgentState     `json:"state"`
	LastError   string         `json:"last_error,omitempty"`
	Sessions    []AgentSession `json:"sessions"`

	ProjectID string `json:"-"`
}

// AgentTool is a custom tool of an agent that is a command in the sandbox. It is run
// with the tool's input as JSON on its standard input; what it prints is the result.
type AgentTool struct {
	Name    string `json:"name"`
	Command string `json:"command"`
}

// AgentSession is a session that an attachment has worked for.
type AgentSession struct {
	ID string `json:"id"`
	// SandboxID is missing until a tool is first called.
	SandboxID string `json:"sandbox_id,omitempty"`
	// Working is set while a piece of its work is claimed.
	Working   bool   `json:"working"`
	LastError string `json:"last_error,omitempty"`
}

// AgentAttach is a request to attach an environment.
type AgentAttach struct {
	Environment string `json:"environment"`
	// Key is the environment key. It is kept encrypted, and never shown.
	Key string `json:"key"`
	// URL is AgentsURL when empty.
	URL     string         `json:"url,omitempty"`
	Sandbox *SandboxCreate `json:"sandbox,omitempty"`
	Tools   []AgentTool    `json:"tools,omitempty"`
	// MaxSessions is 10 when 0.
	MaxSessions int `json:"max_sessions,omitempty"`
}

// AgentService keeps a project's attachments.
type AgentService interface {
	// AttachAgents attaches an environment. For one that is attached it replaces the
	// key and the rest, and its sessions continue.
	AttachAgents(ctx context.Context, req AgentAttach) (*AgentAttachment, error)
	// AgentAttachments lists the caller's, oldest first.
	AgentAttachments(ctx context.Context) ([]*AgentAttachment, error)
	AgentAttachment(ctx context.Context, id string) (*AgentAttachment, error)
	// DetachAgents ends the work for an environment. The sandboxes of its sessions are paused.
	DetachAgents(ctx context.Context, id string) error
}
