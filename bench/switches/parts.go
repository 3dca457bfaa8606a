package switches

import (
	"context"
	"errors"
	"time"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/bench"
	"github.com/bothy-dev/bothy/bench/work"
)

// Names of measures that only this package has.
const (
	ColdCPU    = "create_exec_cold_cpu"
	IdleMemory = "idle_memory_mb"
	IdleCPU    = "idle_cpu_ms"
)

const (
	// settle is how long sandboxes are left alone before their usage is measured, and watched
	// how long their processor time is measured.
	settle, watched = 12 * time.Second, 10 * time.Second
	// apart is how long the next turn waits for the previous one to finish its work.
	apart = 150 * time.Millisecond
)

// A part measures something of all contenders.
type part struct {
	name, about string
	run         func(ctx context.Context, field []*contender, o Options) ([]*bench.Result, error)
}

var parts = []part{
	{"cold", "cold starts", colds},
	{"pool", "starts from the pool", pools},
	{"exec", "commands", execs},
	{"resume", "resumes", resumes},
	{"idle", "idle sandboxes", idle},
	{"work", "work", works},
}

// Parts are the names of what Run measures.
func Parts() (names []string) {
	for _, p := range parts {
		names = append(names, p.name)
	}
	return names
}

// colds measures cold starts, and the processor time of each sandbox including its end.
func colds(ctx context.Context, field []*contender, o Options) ([]*bench.Result, error) {
	return each(ctx, field, o.Turns, "create_exec_cold:ms "+ColdCPU+":ms", func(c *contender) bench.Subject {
		start := bench.StartCold(c.cold.Target)
		return bench.Subject{Once: func(ctx context.Context, record bench.Record) error {
			before, err := c.cold.SandboxSeconds(c.anchor)
			if err != nil {
				return err
			}
			if err := start.Once(ctx, record); err != nil {
				return err
			}
			bench.Sleep(ctx, apart)
			after, err := c.cold.SandboxSeconds(c.anchor)
			record(ColdCPU, 1000*(after-before))
			return err
		}}
	})
}

func pools(ctx context.Context, field []*contender, o Options) ([]*bench.Result, error) {
	return each(ctx, field, o.Turns, bench.CreatePool+":ms "+bench.CreateExecPool+":ms", func(c *contender) bench.Subject {
		start := bench.StartPool(c.pooled.Target)
		return bench.Subject{Once: func(ctx context.Context, record bench.Record) error {
			if err := start.Once(ctx, record); err != nil {
				return err
			}
			return c.pooled.AwaitPool(ctx) // what it makes next affects no measurement
		}}
	})
}

func execs(ctx context.Context, field []*contender, o Options) ([]*bench.Result, error) {
	return each(ctx, field, 5*o.Turns, "exec:ms", func(c *contender) bench.Subject { return bench.ExecIn(c.cold.Target, c.anchor) })
}

func resumes(ctx context.Context, field []*contender, o Options) ([]*bench.Result, error) {
	held := map[string]*bench.Held{}
	for _, c := range field {
		h, end, err := c.pooled.Hold(ctx, 0)
		if err != nil {
			return nil, err
		}
		defer end()
		held[c.Name] = h
	}
	return each(ctx, field, max(1, 2*o.Turns/3), bench.Resume+":ms "+bench.Pause+":ms", func(c *contender) bench.Subject {
		again := bench.PauseAndResume(held[c.Name])
		return bench.Subject{Once: func(ctx context.Context, record bench.Record) error {
			err := again.Once(ctx, record)
			bench.Sleep(ctx, 2*apart) // a new spare is made
			return err
		}}
	})
}

func works(ctx context.Context, field []*contender, o Options) (all []*bench.Result, failed error) {
	for _, c := range field {
		place, end, err := work.InSandbox(ctx, c.cold.Target, work.Rows[0].Template)
		if err != nil {
			return nil, err
		}
		defer end()
		c.site = work.NewSite(c.Name, place)
	}
	for _, r := range o.Rows {
		results, err := each(ctx, field, max(1, o.Turns/4), r.Name+":"+r.Unit, func(c *contender) bench.Subject {
			return c.site.Subject(r, nil, o.Scale)
		})
		all, failed = append(all, results...), errors.Join(failed, err)
	}
	return all, failed
}

// idle measures what idle sandboxes use, of all contenders at the same time. The processor time
// is that of all of them together, in ten seconds.
func idle(ctx context.Context, field []*contender, o Options) ([]*bench.Result, error) {
	defer func() {
		for _, c := range field {
			for _, id := range c.ids {
				_ = c.cold.Client.Sandboxes.Terminate(context.WithoutCancel(ctx), id)
			}
		}
	}()
	for range o.Idle {
		for _, c := range field {
			sb, _, err := c.cold.Create(ctx, bothy.SandboxCreate{})
			if err != nil {
				return nil, err
			}
			c.ids = append(c.ids, sb.ID)
			if _, err := c.cold.Run(ctx, sb.ID, bench.True); err != nil {
				return nil, err
			}
		}
	}
	bench.Sleep(ctx, settle)
	used := make([]float64, len(field))
	memory, processor := make([][]float64, len(field)), make([][]float64, len(field))
	var err error
	for i, c := range field {
		if used[i], err = c.cold.SandboxSeconds(c.anchor); err != nil {
			return nil, err
		}
	}
	bench.Sleep(ctx, watched)
	for i, c := range field {
		after, err := c.cold.SandboxSeconds(c.anchor)
		if err != nil {
			return nil, err
		}
		processor[i] = []float64{1000 * (after - used[i])}
	}
	for i, c := range field {
		for _, id := range c.ids {
			mb, err := c.cold.PSSMB(id)
			if err != nil {
				return nil, err
			}
			memory[i] = append(memory[i], mb)
		}
	}
	return []*bench.Result{gather(IdleMemory, "MB", field, memory), gather(IdleCPU, "ms", field, processor)}, nil
}
