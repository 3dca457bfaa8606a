package processor

import (
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"

	"gvisor.dev/gvisor/pkg/cpuid"

	"github.com/bothy-dev/bothy"
)

func TestFeaturesAreWhatTheLibrarySees(t *testing.T) {
	name, _, _ := strings.Cut(Env(), "=")
	t.Setenv(name, "")
	for range 100 { // one answer is the number of the current processor
		if reflect.DeepEqual(Features(), cpuid.FeatureSet{Function: &cpuid.Native{}}.Fixed()) {
			return
		}
	}
	t.Error("features differ")
}

func TestFeaturesAreThoseOfTheEnvironment(t *testing.T) {
	static := cpuid.Static{{Eax: 1, Ecx: 2}: {Eax: 3, Ebx: 4, Ecx: 5, Edx: 0xffffffff}, {}: {Ebx: 6}}
	name, own, _ := strings.Cut(Env(), "=")
	t.Setenv(name, encode(static))
	if got := Features(); !reflect.DeepEqual(got, static.ToFeatureSet()) {
		t.Errorf("features are %v", got)
	}
	if got := decode(own); len(got) != len(ask()) || !maps.Equal(got, decode(encode(got))) {
		t.Errorf("a sentry gets %v", got)
	}
}

func TestNonsenseIsNotBelieved(t *testing.T) {
	for _, value := range []string{"", "?", "AAAA", "no base64!"} {
		if got := decode(value); got != nil {
			t.Errorf("%q is parsed as %v", value, got)
		}
	}
}

// The library refuses to start with a feature that it does not know.
func TestTheLibraryKnowsTheFeaturesOfLevels(t *testing.T) {
	for _, f := range bothy.CPUFeatures(bothy.CPULevel4) {
		if _, ok := cpuid.FeatureFromString(f); !ok {
			t.Errorf("the library does not know %s", f)
		}
	}
}

func TestTheHostsProcessor(t *testing.T) {
	h := Host()
	if h.Vendor == "" || h.Level == "" || h.CacheLine == 0 || !slices.IsSorted(h.Features) || !slices.Contains(h.Features, "sse2") {
		t.Errorf("it is %+v", h)
	}
}
