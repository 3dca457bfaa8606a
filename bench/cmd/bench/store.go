package main

import (
	"context"
	"fmt"
	"time"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/bench"
	"github.com/bothy-dev/bothy/bench/lab"
	"github.com/bothy-dev/bothy/store/postgres/pgtest"
)

func init() {
	programs["store"] = program{about: "a create with the records in PostgreSQL, against one with them in files: needs Debian's postgresql", run: stores}
}

// storeAtMostMS is how much longer a create may take with PostgreSQL on the same host.
const storeAtMostMS = 3

// stores takes turns between two servers, each of which has a sandbox ready.
func stores(ctx context.Context, l *lab.Lab, b *book, n int) error {
	pg, err := pgtest.Start(true)
	if err != nil {
		return err
	}
	defer pg.Stop()
	settings := fmt.Sprintf("pool:\n  templates: [%s]\n", l.Template)
	files, err := l.Server(ctx, settings)
	if err != nil {
		return err
	}
	database, err := l.Server(ctx, settings, "BOTHY_STORE="+pg.URL("postgres"))
	if err != nil {
		return err
	}
	create := func(s *lab.Server) (float64, error) {
		for _, each := range []*lab.Server{files, database} {
			if err := each.AwaitPool(ctx); err != nil {
				return 0, err
			}
		}
		begun := time.Now()
		_, gone, err := s.Create(ctx, bothy.SandboxCreate{Metadata: map[string]string{"team": "bench"}})
		if err != nil {
			return 0, err
		}
		took := bench.Since(begun)
		gone()
		return took, nil
	}
	var more []float64
	var last float64
	const measure = "store.create_pool"
	err = b.run(ctx, bench.Case{
		N: orElse(n, 150), Measures: []bench.Measure{{Name: measure, Unit: "ms"}},
		Subjects: []bench.Subject{
			{Name: "files", Once: func(_ context.Context, record bench.Record) (err error) {
				if last, err = create(files); err == nil {
					record(measure, last)
				}
				return err
			}},
			{Name: "postgres", Once: func(_ context.Context, record bench.Record) error {
				took, err := create(database)
				if err == nil {
					record(measure, took)
					more = append(more, took-last)
				}
				return err
			}},
		},
	})
	if len(more) > 1 {
		b.Results = append(b.Results, bench.Single("store.create_more_with_postgres", "ms", more[1:], bench.Bound{AtMost: storeAtMostMS}))
	}
	return err
}
