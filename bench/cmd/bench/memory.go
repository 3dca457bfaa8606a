package main

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/bench"
	"github.com/bothy-dev/bothy/bench/lab"
)

func init() {
	programs["memory"] = program{about: "memory of sandboxes that do nothing", run: memory}
}

// settle is how long sandboxes are left alone before their memory is measured.
const settle = 5 * time.Second

// memory measures what idle sandboxes use, for several numbers of them.
func memory(ctx context.Context, l *lab.Lab, b *book, n int) error {
	s, err := l.Server(ctx, "")
	if err != nil {
		return err
	}
	server := strconv.Itoa(s.PID)
	var ids []string
	most := orElse(n, 100)
	for _, count := range []int{1, 10, 20, 50, 100} {
		if count > most {
			break
		}
		before, serverBefore, had := bench.AvailableMB(), pss(server), len(ids)
		for len(ids) < count {
			sb, _, err := s.Create(ctx, bothy.SandboxCreate{})
			if err != nil {
				return err
			}
			if _, err := s.Run(ctx, sb.ID, bench.True); err != nil {
				return err
			}
			ids = append(ids, sb.ID)
		}
		bench.Sleep(ctx, settle)
		after, serverAfter, added := bench.AvailableMB(), pss(server), float64(count-had)
		var each []float64
		for _, id := range ids {
			mb, err := s.PSSMB(id)
			if err != nil {
				return err
			}
			each = append(each, mb)
		}
		b.Results = append(b.Results,
			bench.Single(fmt.Sprintf("idle_memory_mb.of_%d", count), "MB", each, bench.Bound{AtMost: 20}),
			bench.Single(fmt.Sprintf("idle_available_mb.%d_to_%d", had, count), "MB", []float64{(before - after) / added}),
			bench.Single(fmt.Sprintf("server_memory_mb.%d_to_%d", had, count), "MB", []float64{(serverAfter - serverBefore) / added}))
	}
	return nil
}

func pss(pid string) float64 {
	mb, _ := lab.PSSMB(pid)
	return mb
}
