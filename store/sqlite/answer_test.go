package sqlite_test

import (
	"bytes"
	"context"
	"database/sql"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/bothy-dev/bothy/store"
	"github.com/bothy-dev/bothy/store/sqlite"
)

// once does a request under a key, unless it was done, and returns what is known.
func once(t *testing.T, s *sqlite.Store, project, key string, body []byte) *store.Answer {
	t.Helper()
	a, err := s.ReserveAnswer(t.Context(), project, key, "print")
	if err != nil {
		t.Fatal(err)
	}
	if a == nil {
		if err := s.StoreAnswer(t.Context(), project, key, store.Answer{Status: 200, Body: body}); err != nil {
			t.Fatal(err)
		}
	}
	return a
}

func fileSize(t *testing.T, path string) (n int64) {
	t.Helper()
	for _, p := range []string{path, path + "-wal"} {
		if info, err := os.Stat(p); err == nil {
			n += info.Size()
		}
	}
	return n
}

// However much a project has remembered, it takes no more than its share, and
// nothing of the main database. The keys outlive the bodies, and the young the old.
func TestAnswersAreBounded(t *testing.T) {
	path := filepath.Join(t.TempDir(), "b.db")
	bounds := store.AnswerBounds{ProjectBytes: 1 << 20, Bytes: 3 << 20, ProjectKeys: 200}
	s := open(t, path, sqlite.WithAnswerBounds(bounds))
	before := fileSize(t, path)
	body := bytes.Repeat([]byte("x"), 60<<10)
	once(t, s, "victim", "k", []byte("mine"))
	for i := range 1000 {
		once(t, s, "greedy", fmt.Sprint(i), body)
	}
	if after := fileSize(t, path); after > before+64<<10 {
		t.Errorf("the database grew from %d to %d bytes", before, after)
	}
	answers := filepath.Join(filepath.Dir(path), "b-answers.db")
	if n := fileSize(t, answers); n > 12<<20 {
		t.Errorf("the answers take %d bytes", n)
	}
	check := func() {
		t.Helper()
		if a := once(t, s, "greedy", "999", nil); a == nil || a.Dropped || !bytes.Equal(a.Body, body) {
			t.Errorf("the last answer: %+v", a)
		}
		if a := once(t, s, "greedy", "950", nil); a == nil || !a.Dropped || a.Status != 200 || len(a.Body) != 0 {
			t.Errorf("an older one: %+v, want its key alone", a)
		}
		if a := once(t, s, "victim", "k", nil); a == nil || string(a.Body) != "mine" {
			t.Errorf("another project's answer: %+v", a)
		}
	}
	check()
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s = open(t, path, sqlite.WithAnswerBounds(bounds))
	defer s.Close()
	check()
	if a := once(t, s, "greedy", "0", nil); a != nil {
		t.Errorf("more keys are kept than may be: %+v", a)
	}
}

// Where all projects together have too much, the largest gives way.
func TestTheLargestProjectGivesWay(t *testing.T) {
	s := open(t, filepath.Join(t.TempDir(), "b.db"), sqlite.WithAnswerBounds(store.AnswerBounds{ProjectBytes: 2 << 20, Bytes: 2 << 20, ProjectKeys: 1000}))
	defer s.Close()
	body := bytes.Repeat([]byte("x"), 60<<10)
	once(t, s, "modest", "k", body)
	for i := range 100 {
		once(t, s, "greedy", fmt.Sprint(i), body)
	}
	if a := once(t, s, "modest", "k", nil); a == nil || a.Dropped {
		t.Errorf("the answer of the modest project: %+v", a)
	}
}

func TestAnswersBoundedByManyAtOnce(t *testing.T) {
	s := open(t, filepath.Join(t.TempDir(), "b.db"), sqlite.WithAnswerBounds(store.AnswerBounds{ProjectBytes: 100 << 10, Bytes: 300 << 10, ProjectKeys: 20}))
	defer s.Close()
	var wg sync.WaitGroup
	for w := range 8 {
		wg.Go(func() {
			for i := range 50 {
				project, key := fmt.Sprint("p", w%4), fmt.Sprint(w, "-", i)
				if a, err := s.ReserveAnswer(context.Background(), project, key, "print"); err != nil || a != nil {
					t.Errorf("%v, %v", a, err)
				}
				var err error
				if i%5 == 0 {
					err = s.ForgetAnswer(context.Background(), project, key)
				} else {
					err = s.StoreAnswer(context.Background(), project, key, store.Answer{Status: 200, Body: make([]byte, 9<<10)})
				}
				if err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
}

// Those who ask wait for the deletion of a part of what is old, and not of all.
func TestOldAnswersGoInParts(t *testing.T) {
	path := filepath.Join(t.TempDir(), "b.db")
	now := time.Now()
	s := open(t, path, sqlite.WithNow(func() time.Time { return now }))
	defer s.Close()
	for i := range 1200 {
		once(t, s, "p", fmt.Sprint(i), nil)
	}
	now = now.Add(25 * time.Hour)
	left := func() (n int) {
		db, err := sql.Open("sqlite", filepath.Join(filepath.Dir(path), "b-answers.db"))
		if err != nil {
			t.Fatal(err)
		}
		defer db.Close()
		if err := db.QueryRow(`SELECT count(*) FROM answers`).Scan(&n); err != nil {
			t.Fatal(err)
		}
		return n
	}
	was := 1200
	for i := range 3 {
		once(t, s, "q", fmt.Sprint(i), nil)
		n := left()
		if n >= was || was-n > 600 {
			t.Errorf("%d answers were left, then %d", was, n)
		}
		was = n
	}
	if was != 3 {
		t.Errorf("%d answers are left, want 3", was)
	}
}

// The answers of a server before this one move into their own file.
func TestAnswersOfTheServerBefore(t *testing.T) {
	path := filepath.Join(t.TempDir(), "b.db")
	schema, err := os.ReadFile("migrations/00001_first.sql")
	if err != nil {
		t.Fatal(err)
	}
	up, _, _ := strings.Cut(string(schema), "-- +goose Down")
	db, err := sql.Open("sqlite", path)
	if err != nil {
		t.Fatal(err)
	}
	now := time.Now().UnixNano()
	for _, text := range []string{
		up,
		`CREATE TABLE goose_db_version (id INTEGER PRIMARY KEY AUTOINCREMENT, version_id INTEGER NOT NULL, is_applied INTEGER NOT NULL, tstamp TIMESTAMP DEFAULT (datetime('now')))`,
		`INSERT INTO goose_db_version (version_id, is_applied) VALUES (0, 1), (1, 1)`,
		fmt.Sprintf(`INSERT INTO answers VALUES ('p', 'small', 'f', %d, 201, '{"Location":"/x"}', 'body'), ('p', 'large', 'f', %d, 200, '{}', zeroblob(1000000)), ('p', 'held', 'f', %d, 0, '{}', NULL)`, now, now, now),
	} {
		if _, err := db.Exec(text); err != nil {
			t.Fatal(err)
		}
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	s := open(t, path)
	defer s.Close()
	if a := once(t, s, "p", "small", nil); a == nil || a.Status != 201 || string(a.Body) != "body" || a.Header["Location"] != "/x" {
		t.Errorf("the small one is %+v", a)
	}
	if a := once(t, s, "p", "large", nil); a == nil || !a.Dropped {
		t.Errorf("the large one is %+v", a)
	}
	if a := once(t, s, "p", "held", nil); a != nil {
		t.Errorf("a reservation of a server that is gone is %+v", a)
	}
}
