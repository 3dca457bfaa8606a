// Package driver is how a server talks to a sentry: its arguments, the spec of its
// sandbox, and the calls on its control socket. This depends on the version of gVisor, so
// each sentry carries the matching driver: a server drives a sentry of its own build by
// calling this package, and one of an earlier build by running that sentry's program with
// Arg, which does the same there. engine/gvisor and its entry use it.
package driver

import (
	"encoding/json"
	"fmt"
	"io"
	"os"

	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/control/client"
	"gvisor.dev/gvisor/pkg/state/statefile"
	"gvisor.dev/gvisor/pkg/urpc"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/engine/gvisor/library"
	"github.com/bothy-dev/bothy/engine/gvisor/tuning"
)

// Arg is the first argument that makes a sentry's program a driver: it reads a Request from its
// standard input, and writes a Prepared, or nothing, to its standard output. Errors go to the
// standard error.
const Arg = "driver"

// FirstFD is the descriptor of a request's first file, in a driver.
const FirstFD = 3

// Request is a request to a driver: to prepare a launch, or to do something on the control
// socket of a sentry. Its format and meaning are part of the protocol.
type Request struct {
	Launch *Launch `json:"launch,omitempty"`
	Socket string  `json:"socket,omitempty"`
	Op     *Op     `json:"op,omitempty"`
	// Files is the number of files.
	Files int `json:"files,omitempty"`
}

// Launch describes a sentry to start.
type Launch struct {
	// Name is the sentry's name for its sandbox, and Dir the folder of the machine.
	Name string `json:"name"`
	Dir  string `json:"dir"`
	// RootFS and Guest are the paths of its images.
	RootFS   string       `json:"rootfs"`
	Guest    string       `json:"guest"`
	Hostname string       `json:"hostname"`
	Limits   bothy.Limits `json:"limits"`
	// CPUFeatures are the processor features that programs see; empty means all.
	CPUFeatures []string `json:"cpu_features,omitempty"`
	// Files are the roles of the files that it will have, from FirstFD on.
	Files   []Role `json:"files"`
	FirstFD int    `json:"first_fd"`
	// Patched says that the sentry's library is patched. A driver finds that out by itself.
	Patched bool `json:"-"`
	// Off are the optimisations that a maintainer has switched off.
	Off tuning.Off `json:"-"`
}

// A Role says what a sentry uses a file for.
type Role string

// The roles of files.
const (
	RolePanicLog  Role = "panic-log"
	RoleRoot      Role = "root"      // the image of the root file system
	RoleGuest     Role = "guest"     // the image with the guest
	RoleFilestore Role = "filestore" // the writable layer
	RoleFilesTar  Role = "files-tar" // a tar of initial files
	RoleSpec      Role = "spec"
	RoleControl   Role = "control" // the control socket
	RoleNull      Role = "null"    // three of them: the standard files
	RoleReady     Role = "ready"   // a pipe on which it reports that it is ready
)

// Prepared is how to start a sentry.
type Prepared struct {
	// Args are its arguments. Those of Alone are inserted at Boot if it has to sandbox itself,
	// or MountFD with the number of a descriptor if that was done for it.
	Args    []string `json:"args"`
	Boot    int      `json:"boot"`
	Alone   []string `json:"alone"`
	MountFD string   `json:"mount_fd"`
	// Spec is the content of RoleSpec's file.
	Spec json.RawMessage `json:"spec"`
}

// Op is an operation for a sentry to execute.
type Op struct {
	Name OpName `json:"name"`
	// Container is the sentry's name for its sandbox.
	Container string `json:"container,omitempty"`
	// Small skips what need not be written.
	Small bool `json:"small,omitempty"`
}

// OpName names an Op.
type OpName string

// The operations of sentries.
const (
	// OpStart starts process 1. Its file is the sentry's end of the network device.
	OpStart OpName = "start"
	// OpRestore reads a kernel. Its files are the sentry's end of the network device and those
	// of the image, in the order of ImageFiles.
	OpRestore OpName = "restore"
	// OpCheckpoint writes the kernel to the files of an image.
	OpCheckpoint OpName = "checkpoint"
	// OpTar writes the changed files to a pipe.
	OpTar OpName = "tar"
	// OpPause and OpResume stop the kernel's tasks, and let them continue.
	OpPause  OpName = "pause"
	OpResume OpName = "resume"
)

// The files of an image of a kernel. The names are part of the format of snapshots.
const (
	StateFile     = "checkpoint.img"
	PagesMetaFile = "pages_meta.img"
	PagesFile     = "pages.img"
)

// ImageFiles are the files of an image in the order in which they are passed.
var ImageFiles = []string{StateFile, PagesMetaFile, PagesFile}

// Connect opens a connection to a sentry's control socket.
func Connect(path string) (*urpc.Client, error) {
	socket, err := os.OpenFile(path, unix.O_PATH, 0)
	if err != nil {
		return nil, err
	}
	defer socket.Close()
	// The path through the descriptor is short enough for a socket's address.
	return client.ConnectTo(fmt.Sprintf("/proc/self/fd/%d", socket.Fd()))
}

// Do has a sentry execute an operation. The files stay open.
func Do(conn *urpc.Client, op Op, files []*os.File) error {
	if want := map[OpName]int{OpStart: 1, OpRestore: 1 + len(ImageFiles), OpCheckpoint: len(ImageFiles), OpTar: 1}[op.Name]; len(files) != want {
		return fmt.Errorf("%q needs %d files and has %d", op.Name, want, len(files))
	}
	payload := urpc.FilePayload{Files: files}
	switch op.Name {
	case OpStart:
		if err := setNetwork(conn, files[0], false); err != nil {
			return err
		}
		return conn.Call(callStart, &op.Container, nil)
	case OpRestore:
		if err := setNetwork(conn, files[0], true); err != nil {
			return err
		}
		payload.Files = files[1:]
		return conn.Call(callRestore, &restoreArgs{Background: true, HavePagesFile: true, FilePayload: payload}, nil)
	case OpCheckpoint:
		return conn.Call(callCheckpoint, &checkpointArgs{
			Metadata:      statefile.CompressionLevelNone.ToMetadata(),
			SkipZeroPages: op.Small,
			Resume:        true,
			HavePagesFile: true,
			FilePayload:   payload,
		}, nil)
	case OpTar:
		return conn.Call(callTar, &tarArgs{ContainerID: op.Container, FilePayload: payload}, nil)
	case OpPause:
		return conn.Call(callPause, nil, nil)
	case OpResume:
		return conn.Call(callResume, nil, nil)
	}
	return fmt.Errorf("this sentry's driver knows no %q", op.Name)
}

// Serve answers the request of a server of another build.
func Serve(in io.Reader, out io.Writer) error {
	var q Request
	if err := json.NewDecoder(in).Decode(&q); err != nil {
		return fmt.Errorf("read what to do: %w", err)
	}
	if q.Launch != nil {
		q.Launch.Patched = library.Own().Patched
		p, err := Prepare(*q.Launch)
		if err != nil {
			return err
		}
		return json.NewEncoder(out).Encode(p)
	}
	if q.Op == nil || q.Files < 0 {
		return fmt.Errorf("this sentry's driver was sent a request that it does not know")
	}
	files := make([]*os.File, q.Files)
	for i := range files {
		files[i] = os.NewFile(uintptr(FirstFD+i), "given")
	}
	conn, err := Connect(q.Socket)
	if err != nil {
		return err
	}
	defer conn.Close()
	return Do(conn, *q.Op, files)
}
