package bothy_test

import (
	"slices"
	"testing"

	"github.com/bothy-dev/bothy"
)

func processorOf(features ...string) bothy.Processor {
	slices.Sort(features)
	features = slices.Compact(features)
	return bothy.Processor{Vendor: "AuthenticAMD", Level: bothy.CPULevelOf(features), CacheLine: 64, Features: features}
}

func TestLevelsOfProcessors(t *testing.T) {
	for _, level := range []string{bothy.CPULevel1, bothy.CPULevel2, bothy.CPULevel3, bothy.CPULevel4} {
		features := bothy.CPUFeatures(level)
		if got := bothy.CPULevelOf(features); got != level {
			t.Errorf("a processor of %s is one of %s", level, got)
		}
	}
	if got := bothy.CPULevelOf([]string{"sse2", "avx512f"}); got != "" {
		t.Errorf("a processor that is none of x86-64 is %q", got)
	}
	// A processor that lacks one of a level's features has the level below.
	features := slices.DeleteFunc(bothy.CPUFeatures(bothy.CPULevel4), func(f string) bool { return f == "bmi2" })
	if got := bothy.CPULevelOf(features); got != bothy.CPULevel2 {
		t.Errorf("without bmi2 it is %s", got)
	}
}

func TestFeaturesShownToSandboxes(t *testing.T) {
	all := processorOf(append(bothy.CPUFeatures(bothy.CPULevel4), "gfni", "hypervisor", "sse4a")...)
	if got := all.Shown(bothy.CPUHost); !slices.Equal(got.Features, all.Features) {
		t.Errorf("all that is shown is %v", got)
	}
	got := all.Shown(bothy.CPULevel2)
	if got.Level != bothy.CPULevel2 || slices.Contains(got.Features, "avx") || slices.Contains(got.Features, "gfni") || !slices.Contains(got.Features, "sse4_2") {
		t.Errorf("of level 2 is shown %v", got)
	}
	if !slices.Contains(all.Features, "avx") {
		t.Error("it was changed itself")
	}
}

func TestWhichProcessorRestoresMemory(t *testing.T) {
	three, four := processorOf(bothy.CPUFeatures(bothy.CPULevel3)...), processorOf(bothy.CPUFeatures(bothy.CPULevel4)...)
	other := three
	other.CacheLine = 128
	for _, c := range []struct {
		host bothy.Processor
		of   *bothy.Processor
		want bool
	}{
		{four, &three, true}, {three, &four, false}, {three, &three, true}, {other, &three, false},
		{three, nil, true}, {bothy.Processor{}, &four, true}, {three, &bothy.Processor{}, true},
	} {
		if got := c.host.Wakes(c.of); got != c.want {
			t.Errorf("%s restores memory of %v: %v", c.host, c.of, got)
		}
	}
	masked := four.Shown(bothy.CPULevel3)
	if !three.Wakes(&masked) {
		t.Errorf("a sandbox that sees a lower level cannot be restored on it: %v", three.Lacks(masked))
	}
	if got := bothy.FeatureList(three.Lacks(four)); got != "adx, avx512bw, avx512cd, avx512dq, avx512f, avx512vl and 3 more features" {
		t.Errorf("it lacks %s", got)
	}
}
