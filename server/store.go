package server

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/bothy-dev/bothy/cluster"
	"github.com/bothy-dev/bothy/config"
	"github.com/bothy-dev/bothy/doctor"
	"github.com/bothy-dev/bothy/internal/random"
	"github.com/bothy-dev/bothy/internal/wholefile"
	"github.com/bothy-dev/bothy/lifecycle"
	"github.com/bothy-dev/bothy/store"
	"github.com/bothy-dev/bothy/store/postgres"
	"github.com/bothy-dev/bothy/store/sqlite"

	"github.com/bothy-dev/bothy"
)

// database stores the server's records.
type database interface {
	store.Store
	store.Usage
	// ForgetTemplateNames deletes the template names that hosts of a cluster shared.
	ForgetTemplateNames(ctx context.Context) error
}

// openStore opens the database. The home is locked by now, so no earlier server of this home is
// still running.
func (s *Server) openStore(ctx context.Context) error {
	c := s.config
	if c.Store == "" {
		files := filepath.Join(c.Home, "bothy.db")
		if err := checkNotMigrated(files); err != nil {
			return err
		}
		db, err := sqlite.Open(ctx, files, sqlite.WithAnswerBounds(s.answerBounds()))
		if err != nil {
			return err
		}
		s.keepStore(db)
		s.membership = alone{lifecycle.Alone{Store: db}, s}
		return nil
	}
	id, err := homeID(c.Home)
	if err != nil {
		return err
	}
	opts := []postgres.Option{
		postgres.WithAnswerBounds(s.answerBounds()), postgres.WithLog(s.log), postgres.WithHome(id), postgres.WithHolder(holder(c.Home, id)),
	}
	if c.Cluster.On() {
		if err := cluster.CheckName(c.Cluster.Name); err != nil {
			return err
		}
		times := leaseTimes(c)
		opts = append(opts, postgres.WithMember(postgres.Member{Name: c.Cluster.Name, Address: cmp.Or(c.Cluster.Address, c.Cluster.Listen), Labels: c.Cluster.Labels,
			Processor: bothy.HostProcessor{Processor: hostProcessor(), CPULevel: c.Engine.CPULevel}}),
			postgres.WithLease(times.Lease, times.Renew()), postgres.WithLastEpoch(lastEpoch(c.Home)))
	}
	db, err := postgres.Open(ctx, c.Store, opts...)
	if err != nil {
		return err
	}
	s.keepStore(db)
	if !c.Cluster.On() {
		s.storeLost, s.membership = db.Lost(), alone{lifecycle.Alone{Store: db}, s}
		return nil
	}
	s.depot.Records, s.membership = db, newMember(s, db)
	return keepEpoch(c.Home, db.Epoch())
}

func (s *Server) keepStore(db database) {
	s.store = db
	s.undo.Add(func() { db.Close() })
}

// homeID identifies the state in a home. A copy of the home has the same id.
func homeID(home string) (string, error) {
	path := filepath.Join(home, "server-id")
	b, err := os.ReadFile(path)
	if id := strings.TrimSpace(string(b)); err == nil && id != "" {
		return id, nil
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return "", err
	}
	id := random.Hex(16)
	return id, wholefile.Write(path, []byte(id+"\n"), 0o600)
}

// epochFile stores the newest epoch of the database that this host has seen.
const epochFile = "cluster-epoch"

func lastEpoch(home string) int64 {
	b, _ := os.ReadFile(filepath.Join(home, epochFile))
	n, _ := strconv.ParseInt(strings.TrimSpace(string(b)), 10, 64)
	return n
}

func keepEpoch(home string, n int64) error {
	return wholefile.Write(filepath.Join(home, epochFile), fmt.Appendln(nil, n), 0o600)
}

// holder identifies who holds the lock on a home's database: the home at this path on this
// machine. A copy of the home elsewhere has another holder, and must wait until the first one's
// lease expires.
func holder(home, id string) string {
	machine, err := os.ReadFile("/etc/machine-id")
	if err != nil {
		host, _ := os.Hostname()
		machine = []byte(host)
	}
	sum := sha256.Sum256(fmt.Appendf(nil, "%s\n%s\n%s", machine, home, id))
	return hex.EncodeToString(sum[:16])
}

// slowStore is the round trip to the database above which doctor warns: each start of a sandbox
// takes several.
const slowStore = 10 * time.Millisecond

// CheckStore checks whether the configured database is usable.
func CheckStore(ctx context.Context, c config.Config) doctor.Result {
	if c.Store == "" {
		return doctor.Result{Status: doctor.OK, Detail: "The records are in SQLite files in " + c.Home + "."}
	}
	ctx, cancel := context.WithTimeout(ctx, 15*time.Second)
	defer cancel()
	i, err := postgres.Check(ctx, c.Store)
	if err != nil {
		e := bothy.AsError(err)
		return doctor.Result{Status: doctor.Fail, Detail: strings.ToUpper(e.Detail[:1]) + e.Detail[1:] + ".", Fix: e.Hint}
	}
	detail := fmt.Sprintf("PostgreSQL %s answers in %.1f ms", i.Version, float64(i.RoundTrip.Microseconds())/1000)
	if i.Server != "" {
		detail += "; it is used by " + i.Server
	}
	if i.RoundTrip > slowStore {
		return doctor.Result{Status: doctor.Warn, Detail: detail + ".", Fix: "Put the database near this host: each start of a sandbox takes several round trips."}
	}
	return doctor.Result{Status: doctor.OK, Detail: detail + "."}
}
