package suite

import (
	"slices"
	"strings"
	"testing"

	"github.com/bothy-dev/bothy/bench"
)

// fixed are names on which docs and scripts rely.
const fixed = `create_pool create_exec_pool create_exec_cold burst100_create_exec_cold exec file_read_4k run_code_warm resume_small
resume_512mb live_snapshot_small fork10 rollback idle_memory_mb live_sandboxes create_rate gateway_gbit_open gateway_gbit_restricted
gateway_connects_open gateway_connects_restricted gateway_connect_slowest_open gateway_connect_slowest_restricted
build_clean build_cached build_last create_serve image_import
work_getppid work_threads work_read work_write work_sqlite work_stat work_tar work_pipe work_spawn
work_pip work_npm work_go work_make work_pytest work_git work_apt`

func TestNames(t *testing.T) {
	names := Names()
	for _, name := range strings.Fields(fixed) {
		if !slices.Contains(names, name) {
			t.Errorf("there is no %s", name)
		}
	}
	slices.Sort(names)
	if len(slices.Compact(names)) != len(Names()) {
		t.Errorf("a name is there twice: %v", names)
	}
}

func TestOptionsThatMakeNoSense(t *testing.T) {
	for want, o := range map[string]Options{
		"create_exec_pool": {Only: []string{"creating"}},
		"docker":           {Against: []string{"podman"}},
		"negative":         {N: -1},
		"amount of work":   {Scale: -1},
		"walk_":            {Only: []string{"walk_*"}},
	} {
		if err := o.Check(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v does not speak of %s", o, err, want)
		}
	}
	if err := (Options{Only: []string{"exec"}, Against: Rivals}).Check(); err != nil {
		t.Error(err)
	}
}

func TestMissingProgramsAreReported(t *testing.T) {
	b := &bed{o: Options{Against: Rivals}, absent: map[string]string{"docker": "it is not installed"}}
	r := &bench.Result{Against: map[string]*bench.Series{"runsc": {}}}
	b.missingIn(r)
	if want := []string{"docker: it is not installed", "bwrap: has nothing like it", "host: has nothing like it"}; !slices.Equal(r.Missing, want) {
		t.Errorf("missing are %q", r.Missing)
	}
	if all := b.missing(); len(all) != 1 || !strings.Contains(all[0], "docker") {
		t.Errorf("missing at all are %q", all)
	}
}

func TestNamesCanBePatterns(t *testing.T) {
	o := Options{Only: []string{"exec", "work_p*"}}
	if err := o.Check(); err != nil {
		t.Fatal(err)
	}
	var wanted []string
	for _, name := range Names() {
		if o.names(name) {
			wanted = append(wanted, name)
		}
	}
	if want := []string{"exec", "work_pipe", "work_pip", "work_pytest"}; !slices.Equal(wanted, want) {
		t.Errorf("%v measure %v", o.Only, wanted)
	}
}

// TestWorkWithoutMaterialsIsMissing measures nothing, so it needs no server.
func TestWorkWithoutMaterialsIsMissing(t *testing.T) {
	o, err := Run(t.Context(), Options{Target: &bench.Target{}, Only: []string{"work_apt"}, Materials: t.TempDir()})
	if err != nil || len(o.Results) != 0 || len(o.Missing) != 1 || !strings.Contains(o.Missing[0], "has not been fetched") {
		t.Errorf("%+v, %v", o, err)
	}
}

// TestUnsupportedMeasuresAreSkipped needs no server: measures that a running server cannot provide are
// skipped before any request.
func TestUnsupportedMeasuresAreSkipped(t *testing.T) {
	o, err := Run(t.Context(), Options{Target: &bench.Target{}, Only: []string{"idle_memory_mb", "gateway_gbit_open"}})
	if err != nil || len(o.Results) != 0 || len(o.Missing) != 2 {
		t.Errorf("%+v, %v", o, err)
	}
}
