package openai

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/bothy-dev/bothy"
)

// mark marks the sandboxes that are containers, in their metadata.
const mark = "bothy.openai.container"

// Root is the folder in which a container's files are.
const Root = "/mnt/data"

const (
	defaultMinutes = 20
	maxMinutes     = bothy.MaxTimeoutSeconds / 60
	anchor         = "last_active_at"
)

// memory maps the names of memory limits to megabytes.
var memory = map[string]int{"1g": 1024, "4g": 4096, "16g": 16384, "64g": 65536}

type expiry struct {
	Anchor  string `json:"anchor"`
	Minutes int    `json:"minutes"`
}

type policy struct {
	Type    string   `json:"type"`
	Domains []string `json:"allowed_domains,omitempty"`
	// Secrets are accepted, but never returned.
	Secrets []struct {
		Domain string `json:"domain"`
		Name   string `json:"name"`
		Value  string `json:"value"`
	} `json:"domain_secrets,omitempty"`
}

type newContainer struct {
	Name    string   `json:"name"`
	Expires *expiry  `json:"expires_after"`
	FileIDs []string `json:"file_ids"`
	Memory  string   `json:"memory_limit"`
	Network *policy  `json:"network_policy"`
	Skills  []any    `json:"skills"`

	// These are not OpenAI's, and mean what they do in the REST API.
	OnHostLoss        bothy.OnHostLoss  `json:"on_host_loss"`
	CheckpointSeconds int               `json:"checkpoint_seconds"`
	HostLabels        map[string]string `json:"host_labels"`
}

type container struct {
	ID           string  `json:"id"`
	Object       string  `json:"object"`
	Name         string  `json:"name"`
	CreatedAt    int64   `json:"created_at"`
	Status       string  `json:"status"`
	Expires      *expiry `json:"expires_after,omitempty"`
	LastActiveAt int64   `json:"last_active_at,omitempty"`
	Memory       string  `json:"memory_limit,omitempty"`
	Network      *policy `json:"network_policy,omitempty"`
}

type deletion struct {
	ID      string `json:"id"`
	Object  string `json:"object"`
	Deleted bool   `json:"deleted"`
}

func containerOf(sb *bothy.Sandbox, lastActive time.Time) container {
	c := container{
		ID: sb.ID, Object: "container", Name: sb.Name, CreatedAt: sb.CreatedAt.Unix(), Status: "running",
		Network: &policy{Type: "disabled"},
	}
	switch {
	case sb.State.Ended():
		c.Status = "expired"
	case sb.State == bothy.StatePaused:
		c.Status = "paused"
	}
	if sb.IdleSeconds > 0 {
		c.Expires = &expiry{anchor, sb.IdleSeconds / 60}
	}
	if !lastActive.IsZero() {
		c.LastActiveAt = lastActive.Unix()
	}
	for name, mb := range memory {
		if mb == sb.MemoryMB {
			c.Memory = name
		}
	}
	if sb.Network.Mode != bothy.NetworkOff {
		c.Network = &policy{Type: "allowlist", Domains: sb.Network.AllowDomains}
	}
	return c
}

// request translates a container's request into a sandbox's, and refuses what has no
// equivalent.
func (in *newContainer) request(template string) (req bothy.SandboxCreate, err error) {
	req = bothy.SandboxCreate{
		Template: template, Name: in.Name, MemoryMB: memory["1g"], IdleSeconds: defaultMinutes * 60, EndWhenIdle: true,
		AutoResume: true, Network: &bothy.Network{Mode: bothy.NetworkOff}, Metadata: map[string]string{mark: "true"},
		OnHostLoss: in.OnHostLoss, CheckpointSeconds: in.CheckpointSeconds, HostLabels: in.HostLabels,
	}
	switch {
	case in.Name == "":
		return req, invalid("name is missing").WithHint("Give the container a name.")
	case len(in.Skills) > 0:
		return req, unsupported("skills do not exist on this server").WithHint("Upload their files to the container.")
	}
	if e := in.Expires; e != nil {
		if e.Anchor != anchor || e.Minutes < 1 || e.Minutes > maxMinutes {
			return req, invalid("expires_after is %d minutes after %q", e.Minutes, e.Anchor).
				WithHint("Give the anchor %s, and from 1 to %d minutes.", anchor, maxMinutes)
		}
		req.IdleSeconds = e.Minutes * 60
	}
	if in.Memory != "" {
		req.MemoryMB = memory[in.Memory]
		switch {
		case req.MemoryMB == 0:
			return req, invalid("memory_limit is %q", in.Memory).WithHint("Give 1g or 4g.")
		case req.MemoryMB > bothy.MaxMemoryMB:
			return req, unsupported("memory_limit is %s, and a sandbox has at most %d MB", in.Memory, bothy.MaxMemoryMB).WithHint("Give 1g or 4g.")
		}
	}
	if in.Network != nil {
		err = in.Network.put(&req)
	}
	return req, err
}

// put translates a network policy, with the secrets that it contains.
func (p *policy) put(req *bothy.SandboxCreate) error {
	switch {
	case p.Type == "disabled" && len(p.Domains)+len(p.Secrets) == 0:
		return nil
	case p.Type != "allowlist":
		return invalid("network_policy is %q", p.Type).WithHint("Give disabled alone, or allowlist with allowed_domains.")
	case len(p.Domains) == 0:
		return invalid("network_policy allows no domain").WithHint("Give allowed_domains, or the type disabled.")
	}
	req.Network = &bothy.Network{Mode: bothy.NetworkRestricted, AllowDomains: p.Domains}
	for _, s := range p.Secrets {
		if !slices.Contains(p.Domains, s.Domain) {
			return invalid("the secret %s is for %s, which is not among allowed_domains", s.Name, s.Domain).
				WithHint("Allow that domain, or leave the secret out.")
		}
		req.Secrets = append(req.Secrets, bothy.Secret{Name: s.Name, Value: s.Value, Hosts: []string{s.Domain}})
	}
	return nil
}

func (d *Door) create(w http.ResponseWriter, r *http.Request) error {
	var in newContainer
	if err := read(w, r, &in); err != nil {
		return err
	}
	ctx := r.Context()
	req, err := in.request(d.template)
	if err != nil {
		return err
	}
	for _, id := range in.FileIDs {
		if _, err := d.source(ctx, id); err != nil {
			return err
		}
	}
	if req.TimeoutSeconds, err = d.life(ctx); err != nil {
		return err
	}
	sb, err := d.Sandboxes.Create(ctx, req)
	if err != nil {
		return err
	}
	d.Note(r, sb.ID, "", "")
	if err := d.furnish(ctx, sb.ID, in.FileIDs); err != nil {
		return errors.Join(err, d.Sandboxes.Terminate(context.WithoutCancel(ctx), sb.ID))
	}
	return reply(w, http.StatusOK, containerOf(sb, time.Now()))
}

// life is how long a container may live however much it is used: as long as the plan allows.
func (d *Door) life(ctx context.Context) (*int, error) {
	limits, err := d.Limits.Limits(ctx)
	if err != nil {
		return nil, err
	}
	if limits.Sandbox.NoTimeout {
		return new(int), nil
	}
	return &limits.Sandbox.TimeoutSeconds, nil
}

// furnish makes the folder of a container's files, and copies files to it.
func (d *Door) furnish(ctx context.Context, id string, files []string) error {
	ran, err := d.Exec.Exec(ctx, id, bothy.ExecRequest{
		Command: bothy.Command{Args: []string{"sh", "-c", "mkdir -p " + Root + " && chmod 777 " + Root}}, Cwd: "/", User: "root",
	})
	if err == nil && ran.ExitCode != 0 {
		err = bothy.Errorf(bothy.CodeGuest, "%s cannot be made in the container: %s", Root, ran.Stderr)
	}
	for _, f := range files {
		if err == nil {
			_, err = d.copyIn(ctx, id, f)
		}
	}
	return err
}

// find looks up a container.
func (d *Door) find(ctx context.Context, id string) (*bothy.Sandbox, error) {
	sb, err := d.Sandboxes.Get(ctx, id)
	if bothy.ErrorCode(err) == bothy.CodeSandboxNotFound || err == nil && (sb.Metadata[mark] == "" || hasEnded(sb)) {
		return nil, bothy.Errorf(bothy.CodeSandboxNotFound, "container %q was not found", id).
			WithHint("client.containers.list() tells which there are.")
	}
	return sb, err
}

// hasEnded reports whether a container was deleted, or failed. One that has expired is not gone.
func hasEnded(sb *bothy.Sandbox) bool {
	return sb.State == bothy.StateStopping || sb.State.Ended() && (sb.Ended == nil || sb.Ended.Reason != bothy.EndTimeout)
}

// live looks up a container whose files are to be used.
func (d *Door) live(r *http.Request) (*bothy.Sandbox, error) {
	id := r.PathValue("container")
	d.Note(r, id, "", "")
	sb, err := d.find(r.Context(), id)
	if err == nil && sb.State.Ended() {
		return nil, bothy.Errorf(bothy.CodeSandboxEnded, "container %q has expired: %s", id, sb.Ended.Detail).
			WithHint("Create another one.")
	}
	return sb, err
}

// get returns a container, which counts as a use of it.
func (d *Door) get(w http.ResponseWriter, r *http.Request) error {
	id := r.PathValue("container")
	d.Note(r, id, "", "")
	sb, err := d.find(r.Context(), id)
	if err != nil {
		return err
	}
	var active time.Time
	if sb.State == bothy.StateRunning {
		if _, err := d.Files.Stat(r.Context(), id, Root, "root"); err == nil {
			active = time.Now()
		}
	}
	return reply(w, http.StatusOK, containerOf(sb, active))
}

func (d *Door) list(w http.ResponseWriter, r *http.Request) error {
	q := r.URL.Query()
	after, limit, ascending, err := paging(q)
	if err != nil {
		return err
	}
	var all []container
	f := bothy.SandboxFilter{States: bothy.LiveStates, Name: q.Get("name"), Metadata: map[string]string{mark: "true"}, Limit: 100}
	for {
		p, err := d.Sandboxes.List(r.Context(), f)
		if err != nil {
			return err
		}
		for _, sb := range p.Items {
			if !hasEnded(sb) {
				all = append(all, containerOf(sb, time.Time{}))
			}
		}
		if f.Cursor = p.NextCursor; f.Cursor == "" {
			break
		}
	}
	if ascending {
		slices.Reverse(all)
	}
	id := func(c container) string { return c.ID }
	if all, err = behind(all, after, id); err != nil {
		return err
	}
	return reply(w, http.StatusOK, pageOf(all, limit, id))
}

// behind returns the items after the one with an id.
func behind[T any](items []T, after string, id func(T) string) ([]T, error) {
	if after == "" {
		return items, nil
	}
	i := slices.IndexFunc(items, func(t T) bool { return id(t) == after })
	if i < 0 {
		return nil, invalid("after is %q, which is not in the list", after).WithHint("It may be deleted: list again from the beginning.")
	}
	return items[i+1:], nil
}

func (d *Door) remove(w http.ResponseWriter, r *http.Request) error {
	id := r.PathValue("container")
	d.Note(r, id, "", "")
	if _, err := d.find(r.Context(), id); err != nil {
		return err
	}
	if err := d.Sandboxes.Terminate(r.Context(), id); err != nil {
		return fmt.Errorf("delete the container: %w", err)
	}
	return reply(w, http.StatusOK, deletion{id, "container.deleted", true})
}
