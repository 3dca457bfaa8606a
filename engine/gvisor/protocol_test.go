package gvisor

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"testing"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/engine/gvisor/driver"
)

var updateProtocol = flag.Bool("update-protocol", false, "write testdata/protocol-N.json")

// said has an example of every message between a server and the driver of a stored build.
var said = struct {
	Arg      string           `json:"arg"`
	FirstFD  int              `json:"first_fd"`
	Image    []string         `json:"image"`
	Launch   driver.Request   `json:"launch"`
	Prepared driver.Prepared  `json:"prepared"`
	Ops      []driver.Request `json:"ops"`
}{
	Arg: driver.Arg, FirstFD: driver.FirstFD, Image: driver.ImageFiles,
	Launch: driver.Request{Launch: &driver.Launch{
		Name: "sbx1", Dir: "/m/sbx1", RootFS: "/rootfs.erofs", Guest: "/guest.erofs", Hostname: "box", FirstFD: 7,
		Limits: bothy.Limits{CPU: 1.5, MemoryMB: 512, DiskMB: 1024, Processes: 100},
		Files: []driver.Role{
			driver.RolePanicLog, driver.RoleRoot, driver.RoleGuest, driver.RoleFilestore, driver.RoleFilesTar,
			driver.RoleSpec, driver.RoleControl, driver.RoleNull, driver.RoleReady,
		},
		CPUFeatures: []string{"sse4_2"},
	}},
	Prepared: driver.Prepared{Args: []string{"a", "boot"}, Boot: 2, Alone: []string{"b"}, MountFD: "c", Spec: json.RawMessage(`{}`)},
	Ops: []driver.Request{
		op(driver.OpStart, 1), op(driver.OpRestore, 4), op(driver.OpCheckpoint, 3), op(driver.OpTar, 1), op(driver.OpPause, 0), op(driver.OpResume, 0),
	},
}

func op(name driver.OpName, files int) driver.Request {
	return driver.Request{Socket: "/m/sbx1/control", Files: files, Op: &driver.Op{Name: name, Container: "sbx1", Small: true}}
}

// TestProtocolIsUnchanged compares messages to drivers with those at the time when the protocol got its
// number. Stored builds of that time are still in use.
func TestProtocolIsUnchanged(t *testing.T) {
	got, err := json.MarshalIndent(said, "", "\t")
	if err != nil {
		t.Fatal(err)
	}
	got = append(got, '\n')
	path := filepath.Join("testdata", fmt.Sprintf("protocol-%d.json", Protocol))
	if *updateProtocol {
		if err := os.WriteFile(path, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("What is said to drivers is no longer that of %s:\n%s\nRaise Protocol (see there), and write a file of the new number with -update-protocol.", path, got)
	}
	for _, x := range []any{*said.Launch.Launch, said.Launch.Launch.Limits, said.Prepared, said.Ops[0], *said.Ops[0].Op} {
		v := reflect.ValueOf(x)
		for i := range v.NumField() {
			f := v.Type().Field(i)
			if v.Field(i).IsZero() && f.Tag.Get("json") != "-" && !(f.Type == reflect.TypeFor[*driver.Launch]()) {
				t.Errorf("the example has no %s.%s", v.Type(), f.Name)
			}
		}
	}
}
