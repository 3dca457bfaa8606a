package store

import "context"

// A Table is one kind of record in a store, in the format in which it is transferred to
// another store. It is not always a database table: data derived from other rows is left out,
// and related rows are joined.
type Table struct {
	Name    string
	Columns []string
}

// Tables are all tables to transfer.
var Tables = []Table{
	{"projects", []string{"id", "plan", "created_at"}},
	{"tokens", []string{"id", "project", "hash", "created_at", "last_used_at", "record"}},
	{"sandboxes", []string{"id", "project", "name", "state", "created_at", "ended_at", "pooled", "metadata", "record", "resume_at", "version", "made_key"}},
	{"snapshots", []string{"id", "project", "sandbox_id", "name", "created_at", "bytes", "record"}},
	{"links", []string{"id", "project", "sandbox_id", "token_id", "created_at", "expires_at", "record"}},
	{"logins", []string{"hash", "project", "token_id", "code", "created_at", "expires_at"}},
	{"webhooks", []string{"id", "project", "created_at", "record", "state"}},
	{"agents", []string{"id", "project", "created_at", "record"}},
	{"agent_sessions", []string{"attachment", "session", "record"}},
	{"events", []string{"id", "project", "time", "record"}},
	// The id of the last event. It must not be reused even if the event is deleted.
	{"events_end", []string{"last_id"}},
	{"answers", []string{"id", "project", "key", "fingerprint", "created_at", "status", "dropped", "size", "header", "body"}},
	{"audit", []string{"id", "time", "project", "token_id", "sandbox_id", "action", "status", "record", "hash"}},
	{"audit_ends", []string{"after_id", "after_hash", "last_id", "last_hash"}},
	{"usage_hours", []string{"project", "template", "sandbox", "labels", "hour", "vcpu", "cpu", "memory", "egress", "ingress", "snapshots", "templates"}},
	{"usage_trees", []string{"root", "vcpu", "cpu", "memory", "egress", "ingress", "snapshots", "templates"}},
	{"usage_marks", []string{"sandbox", "started", "wall", "boot", "uptime", "cpu", "egress", "ingress"}},
	{"usage_state", []string{"name", "value"}},
	{"places", []string{"id", "location", "created_at", "used"}},
	{"template_names", []string{"project", "name", "tag", "digest", "version", "changed_at", "record"}},
	{"shared_trees", []string{"kind", "name", "host", "bytes", "created_at", "stored_at", "unneeded_at", "record"}},
	{"budgets", []string{"kind", "id", "project", "amount", "record"}},
}

// A RowReader is a store whose rows can be transferred to another, while no server uses it.
// Values are int64, float64, string, []byte or nil; metadata is a JSON object with sorted keys.
type RowReader interface {
	// ReadRows calls each for every row of a table, in any order.
	ReadRows(ctx context.Context, t Table, each func(row []any) error) error
}

// Rows is a store that rows can also be transferred to.
type Rows interface {
	RowReader
	// WriteRows adds rows to a table that was empty before the transfer.
	WriteRows(ctx context.Context, t Table, rows [][]any) error
}
