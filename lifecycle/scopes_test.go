package lifecycle_test

import (
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/bothy-dev/bothy"
)

// services are what the doors call. Some doors check no scope themselves.
var services = []reflect.Type{
	reflect.TypeFor[bothy.SandboxService](), reflect.TypeFor[bothy.ExecService](), reflect.TypeFor[bothy.EventService](),
	reflect.TypeFor[bothy.NetworkService](), reflect.TypeFor[bothy.CodeService](), reflect.TypeFor[bothy.MetricsService](),
	reflect.TypeFor[bothy.PortService](), reflect.TypeFor[bothy.LogService](), reflect.TypeFor[bothy.LimitsService](),
	reflect.TypeFor[bothy.SnapshotService](), reflect.TypeFor[bothy.SnapshotMover](), reflect.TypeFor[bothy.FileService](),
}

// reads are the methods that need no scope to write.
var reads = strings.Fields(`Get List AllProcesses Output Processes Events LastEvent NetworkLog Contexts LatestMetrics Metrics
	MetricsHistory Logs Limits CompareSnapshots Snapshot Snapshots ArchiveKey Read ReadArchive Stat Watch`)

// Each method that a door may call is refused without its scope, however many others the key has.
func TestMethodsRequireTheirScope(t *testing.T) {
	w := newWorld(t)
	for _, service := range services {
		impl := reflect.ValueOf(w.Service)
		if !impl.Type().Implements(service) {
			impl = reflect.ValueOf(w.Service.Files())
		}
		for i := range service.NumMethod() {
			name := service.Method(i).Name
			method := impl.MethodByName(name)
			if name == "CompareSnapshots" { // as this server cannot
				continue
			}
			needs := bothy.ScopeSandboxesWrite
			if slices.Contains(reads, name) {
				needs = bothy.ScopeSandboxesRead
			}
			scopes := slices.DeleteFunc(slices.Clone(bothy.AllScopes), func(s bothy.Scope) bool { return s == needs || s == bothy.ScopeAdmin })
			ctx := bothy.WithCaller(t.Context(), &bothy.Caller{ProjectID: "mine", Scopes: scopes})
			args := []reflect.Value{reflect.ValueOf(ctx)}
			for j := 1; j < method.Type().NumIn(); j++ {
				args = append(args, argument(method.Type().In(j)))
			}
			out := method.Call(args)
			err, _ := out[len(out)-1].Interface().(error)
			if bothy.ErrorCode(err) != bothy.CodeForbidden {
				t.Errorf("%s.%s without %s: %v", service.Name(), name, needs, err)
			}
		}
	}
}

// argument is a value that a method accepts before it checks the scope.
func argument(of reflect.Type) reflect.Value {
	switch of {
	case reflect.TypeFor[bothy.ExecRequest]():
		return reflect.ValueOf(bothy.ExecRequest{Command: bothy.Command{Line: "true"}})
	case reflect.TypeFor[uint16]():
		return reflect.ValueOf(uint16(8000))
	}
	return reflect.Zero(of)
}
