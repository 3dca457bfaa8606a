package processor

import (
	"maps"
	"reflect"
	"strings"
	"testing"

	"gvisor.dev/gvisor/pkg/cpuid"
)

func TestFeaturesAreWhatTheLibrarySees(t *testing.T) {
	name, _, _ := strings.Cut(Env(), "=")
	t.Setenv(name, "")
	for range 100 { // one answer is the number of the processor that was asked
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
		t.Errorf("a sentry is told %v", got)
	}
}

func TestNonsenseIsNotBelieved(t *testing.T) {
	for _, value := range []string{"", "?", "AAAA", "no base64!"} {
		if got := decode(value); got != nil {
			t.Errorf("%q is taken for %v", value, got)
		}
	}
}
