package enginetest

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/bothy-dev/bothy"
)

// users looks at the host's processes of machines that live at the same time, some of which an
// earlier server started. Each machine has a user and a group of its own, other than the host's
// nobody.
func users(t *testing.T, s *suite) {
	a, b := s.start(t, "a"), s.start(t, "b")
	owner := map[int]string{0: "the host", 65534: "the host"}
	owns(t, owner, a)
	owns(t, owner, b)
	next := s.engine(t)
	if _, err := next.Adopt(t.Context(), "a", a.State()); err != nil {
		t.Fatal(err)
	}
	for i := range 3 {
		m, err := s.begin(func() (bothy.Machine, error) { return next.Start(t.Context(), s.spec(fmt.Sprintf("later%d", i))) })
		if err != nil {
			t.Fatal(err)
		}
		owns(t, owner, m)
	}
}

// owns notes the user of a machine's processes, which no other machine may have.
func owns(t *testing.T, owner map[int]string, m bothy.Machine) {
	t.Helper()
	var state struct{ PID int }
	if json.Unmarshal(m.State(), &state) != nil || state.PID == 0 {
		t.Skip("machines of this engine are not processes")
	}
	mine := -1
	for _, pid := range Family(state.PID) {
		for _, id := range identities(t, pid) {
			if mine < 0 {
				mine = id
			}
			if id != mine {
				t.Errorf("process %d of %s is user or group %d, and its machine %d", pid, m.ID(), id, mine)
			}
		}
	}
	if owner[mine] != "" {
		t.Errorf("%s runs as %d, as does %s", m.ID(), mine, owner[mine])
	}
	owner[mine] = m.ID()
}

// identities returns the real, effective, saved and file system's user and group of a process.
func identities(t *testing.T, pid int) (ids []int) {
	t.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return nil // it has ended
	}
	for line := range strings.Lines(string(status)) {
		if f := strings.Fields(line); len(f) == 5 && (f[0] == "Uid:" || f[0] == "Gid:") {
			for _, n := range f[1:] {
				id, _ := strconv.Atoi(n)
				ids = append(ids, id)
			}
		}
	}
	return ids
}

// Family lists a process and all its descendants.
func Family(pid int) []int {
	all := []int{pid}
	for i := 0; i < len(all); i++ {
		lists, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", all[i]))
		for _, path := range lists {
			b, _ := os.ReadFile(path)
			for _, child := range strings.Fields(string(b)) {
				if n, err := strconv.Atoi(child); err == nil {
					all = append(all, n)
				}
			}
		}
	}
	return all
}
