package sqlite

import (
	"context"
	"database/sql"
	"fmt"
)

// statements are prepared once: parsing SQL costs more than a small write.
type statements struct {
	addSandbox, addSandboxDurably, putSandbox, putSandboxDurably *sql.Stmt
	sandboxVersion, forgetSandboxes                              *sql.Stmt
	sandbox, sandboxByKey, releaseKey                            *sql.Stmt

	putSnapshot, addSnapshot, setSnapshotDurable, deleteSnapshot *sql.Stmt
	snapshot, allSnapshots                                       *sql.Stmt
	snapshotSum, snapshotSumAll                                  *sql.Stmt

	putToken, deleteToken, touchToken *sql.Stmt
	tokenByHash, tokens               *sql.Stmt

	addLink, deleteLink, forgetLinks *sql.Stmt
	link, links, countLinks          *sql.Stmt

	addLogin, boundLogins, takeLogin, deleteLogin *sql.Stmt
	login                                         *sql.Stmt

	putWebhook, setWebhookState, deleteWebhook *sql.Stmt
	webhook, webhooks                          *sql.Stmt

	putAgents, agents, deleteAgents, deleteAgentSessions *sql.Stmt
	putAgentSession, agentSessions, deleteAgentSession   *sql.Stmt

	addProject, setPlan *sql.Stmt
	project, projects   *sql.Stmt

	addEvent, forgetEvents *sql.Stmt
	events, eventsBefore   *sql.Stmt
	lastEvent              *sql.Stmt
}

// A new sandbox is added, and an existing one replaced if it still has the version that was read.
// The first parameters are the same. A new one's key is set, and an ended one's is dropped.
const (
	addSandboxSQL = `INSERT INTO sandboxes (id, project, name, state, created_at, ended_at, pooled, metadata, record, resume_at, version, made_key)
	VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11 + 1, ?12) ON CONFLICT (id) DO NOTHING`
	putSandboxSQL = `UPDATE sandboxes SET project = ?2, name = ?3, state = ?4, created_at = ?5, ended_at = ?6, pooled = ?7,
	metadata = ?8, record = ?9, resume_at = ?10, version = version + 1,
	made_key = CASE WHEN ?4 IN ('stopped', 'failed') THEN NULL ELSE made_key END WHERE id = ?1 AND version = ?11`
	sandboxVersionSQL = `SELECT coalesce((SELECT version FROM sandboxes WHERE id = ?), 0)`
)

const (
	putSnapshotSQL     = `INSERT INTO snapshots (id, project, sandbox_id, name, created_at, bytes, record) `
	replaceSnapshotSQL = ` ON CONFLICT (id) DO UPDATE SET project = excluded.project, sandbox_id = excluded.sandbox_id,
	name = excluded.name, created_at = excluded.created_at, bytes = excluded.bytes, record = excluded.record`
)

func (st *statements) prepare(ctx context.Context, s *Store) error {
	for _, p := range []struct {
		db   *sql.DB
		into **sql.Stmt
		text string
	}{
		{s.fast, &st.addSandbox, addSandboxSQL},
		{s.durable, &st.addSandboxDurably, addSandboxSQL},
		{s.fast, &st.putSandbox, putSandboxSQL},
		{s.durable, &st.putSandboxDurably, putSandboxSQL},
		{s.read, &st.sandboxVersion, sandboxVersionSQL},
		{s.fast, &st.forgetSandboxes, `DELETE FROM sandboxes WHERE id IN
			(SELECT id FROM sandboxes WHERE state IN ('stopped', 'failed') AND coalesce(ended_at, created_at) < ? LIMIT ?)`},
		{s.read, &st.sandbox, `SELECT record, version FROM sandboxes WHERE id = ?`},
		{s.read, &st.sandboxByKey, `SELECT record, version FROM sandboxes WHERE project = ? AND made_key = ? AND created_at >= ?`},
		{s.fast, &st.releaseKey, `UPDATE sandboxes SET made_key = NULL WHERE project = ? AND made_key = ? AND created_at < ?`},

		{s.durable, &st.putSnapshot, putSnapshotSQL + `VALUES (?, ?, ?, ?, ?, ?, ?)` + replaceSnapshotSQL},
		{s.durable, &st.addSnapshot, putSnapshotSQL + `SELECT ?1, ?2, ?3, ?4, ?5, ?6, ?7
			WHERE max(0, (SELECT coalesce(sum(bytes), 0) FROM snapshots WHERE project = ?2 AND id <> ?1) - ?8) + ?6 <= ?9` + replaceSnapshotSQL},
		{s.durable, &st.setSnapshotDurable, `UPDATE snapshots SET record = json_set(record, '$.durable', ?1)
			WHERE id = ?2 AND json_extract(record, '$.durable') IS NOT ?1`},
		{s.durable, &st.deleteSnapshot, `DELETE FROM snapshots WHERE id = ?`},
		{s.read, &st.snapshot, `SELECT record FROM snapshots WHERE id = ?`},
		{s.read, &st.snapshotSum, `SELECT count(*), coalesce(sum(bytes), 0) FROM snapshots WHERE project = ?`},
		{s.read, &st.snapshotSumAll, `SELECT count(*), coalesce(sum(bytes), 0) FROM snapshots`},
		{s.read, &st.allSnapshots, `SELECT record FROM snapshots ORDER BY created_at DESC, id DESC`},

		{s.durable, &st.putToken, `INSERT INTO tokens (id, project, hash, created_at, last_used_at, record) VALUES (?, ?, ?, ?, ?, ?)
			ON CONFLICT (id) DO UPDATE SET project = excluded.project, hash = excluded.hash,
			created_at = excluded.created_at, last_used_at = excluded.last_used_at, record = excluded.record`},
		{s.durable, &st.deleteToken, `DELETE FROM tokens WHERE project = ? AND id = ?`},
		{s.fast, &st.touchToken, `UPDATE tokens SET last_used_at = max(coalesce(last_used_at, 0), ?) WHERE id = ?`},
		{s.read, &st.tokenByHash, `SELECT record, last_used_at FROM tokens WHERE hash = ?`},
		{s.read, &st.tokens, `SELECT record, last_used_at FROM tokens WHERE project = ? ORDER BY created_at, id`},

		{s.durable, &st.putWebhook, `INSERT INTO webhooks (id, project, created_at, record, state) VALUES (?, ?, ?, ?, ?)
			ON CONFLICT (id) DO UPDATE SET record = excluded.record`},
		{s.fast, &st.setWebhookState, `UPDATE webhooks SET state = ? WHERE id = ?`},
		{s.durable, &st.deleteWebhook, `DELETE FROM webhooks WHERE project = ? AND id = ?`},
		{s.read, &st.webhook, `SELECT record, state FROM webhooks WHERE project = ? AND id = ?`},
		{s.read, &st.webhooks, `SELECT record, state FROM webhooks WHERE ?1 = '' OR project = ?1 ORDER BY created_at, id`},

		{s.durable, &st.putAgents, `INSERT INTO agents (id, project, created_at, record) VALUES (?, ?, ?, ?)
			ON CONFLICT (id) DO UPDATE SET record = excluded.record`},
		{s.read, &st.agents, `SELECT record FROM agents WHERE ?1 = '' OR project = ?1 ORDER BY created_at, id`},
		{s.durable, &st.deleteAgents, `DELETE FROM agents WHERE project = ? AND id = ?`},
		{s.durable, &st.deleteAgentSessions, `DELETE FROM agent_sessions WHERE attachment = ?`},
		// Not durable: if the host dies, the sandboxes' processes and the lease are gone too.
		{s.fast, &st.putAgentSession, `INSERT INTO agent_sessions (attachment, session, record) VALUES (?, ?, ?)
			ON CONFLICT (attachment, session) DO UPDATE SET record = excluded.record`},
		{s.read, &st.agentSessions, `SELECT session, record FROM agent_sessions WHERE attachment = ?`},
		{s.fast, &st.deleteAgentSession, `DELETE FROM agent_sessions WHERE attachment = ? AND session = ?`},

		{s.durable, &st.addLink, `INSERT INTO links (id, project, sandbox_id, token_id, created_at, expires_at, record) SELECT ?1, ?2, ?3, ?4, ?5, ?6, ?7
			WHERE EXISTS (SELECT 1 FROM tokens WHERE id = ?4)
			AND EXISTS (SELECT 1 FROM sandboxes WHERE id = ?3 AND state NOT IN ('stopped', 'failed'))
			AND (?8 = 0 OR (SELECT count(*) FROM links WHERE project = ?2) < ?8)
			AND (?9 = 0 OR (SELECT count(*) FROM links WHERE sandbox_id = ?3) < ?9)`},
		{s.durable, &st.deleteLink, `DELETE FROM links WHERE sandbox_id = ? AND id = ?`},
		{s.fast, &st.forgetLinks, `DELETE FROM links WHERE expires_at < ?`},
		{s.read, &st.link, `SELECT record FROM links WHERE id = ?`},
		{s.read, &st.links, `SELECT record FROM links WHERE sandbox_id = ? ORDER BY created_at DESC, id DESC`},
		{s.read, &st.countLinks, `SELECT count(*), coalesce(sum(sandbox_id = ?), 0) FROM links WHERE project = ?`},

		{s.durable, &st.addLogin, `INSERT INTO logins (hash, project, token_id, code, created_at, expires_at) VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING`},
		{s.fast, &st.boundLogins, `DELETE FROM logins WHERE code = ?1 AND (expires_at <= ?2
			OR hash IN (SELECT hash FROM logins WHERE code = ?1 AND token_id = ?3 ORDER BY created_at DESC LIMIT -1 OFFSET ?4)
			OR hash IN (SELECT hash FROM (SELECT hash, created_at, row_number() OVER (PARTITION BY project ORDER BY created_at DESC) AS nth
				FROM logins WHERE code = ?1) ORDER BY nth, created_at DESC LIMIT -1 OFFSET ?5))`},
		{s.durable, &st.takeLogin, `DELETE FROM logins WHERE hash = ? RETURNING project, token_id, code, created_at, expires_at`},
		{s.durable, &st.deleteLogin, `DELETE FROM logins WHERE hash = ?`},
		{s.read, &st.login, `SELECT project, token_id, code, created_at, expires_at FROM logins WHERE hash = ?`},

		{s.durable, &st.addProject, `INSERT INTO projects (id, plan, created_at) VALUES (?, ?, ?) ON CONFLICT DO NOTHING`},
		{s.durable, &st.setPlan, `UPDATE projects SET plan = ? WHERE id = ?`},
		{s.read, &st.project, `SELECT id, plan, created_at FROM projects WHERE id = ?`},
		{s.read, &st.projects, `SELECT id, plan, created_at FROM projects ORDER BY id`},

		{s.fast, &st.addEvent, `INSERT INTO events (project, time, record) VALUES (?, ?, ?)`},
		{s.fast, &st.forgetEvents, `DELETE FROM events WHERE id IN (SELECT id FROM events WHERE time < ? ORDER BY time LIMIT ?)`},
		{s.read, &st.lastEvent, `SELECT coalesce(max(id), 0) FROM events`},
		{s.read, &st.events, `SELECT id, record FROM events WHERE project = ? AND id > ? ORDER BY id LIMIT ?`},
		{s.read, &st.eventsBefore, `SELECT id, record FROM events WHERE project = ? AND id < ? ORDER BY id DESC LIMIT ?`},
	} {
		var err error
		if *p.into, err = p.db.PrepareContext(ctx, p.text); err != nil {
			return fmt.Errorf("store: prepare %q: %w", p.text, err)
		}
	}
	return nil
}
