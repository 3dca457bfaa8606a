package bothy

import (
	"fmt"
	"slices"
	"strings"
)

// The levels of the x86-64 psABI, each of which has all instructions of those before it.
const (
	// CPUHost stands in settings for all that the host's processor can do.
	CPUHost   = "host"
	CPULevel1 = "x86-64-v1"
	CPULevel2 = "x86-64-v2"
	CPULevel3 = "x86-64-v3"
	CPULevel4 = "x86-64-v4"
)

// Processor is what programs may use of a processor.
type Processor struct {
	// Vendor is as the processor says it: AuthenticAMD, GenuineIntel.
	Vendor string `json:"vendor"`
	// Level is the highest whose instructions it has: x86-64-v1 to x86-64-v4.
	Level string `json:"level"`
	// CacheLine is in bytes.
	CacheLine int `json:"cache_line"`
	// Hides says that the host can hide features from programs that ask the processor itself.
	Hides bool `json:"hides"`
	// Features are in the words of /proc/cpuinfo, in order.
	Features []string `json:"features"`
}

// cpuLevels are the features of each level that the one before it has not.
var cpuLevels = []struct {
	name        string
	needs, also []string
}{
	// What is in also came about with other levels, and every server's processor of this one has
	// it nevertheless.
	{CPULevel1, []string{"cmov", "cx8", "fpu", "fxsr", "mmx", "sse", "sse2", "syscall"},
		[]string{"aes", "apic", "clflush", "de", "ht", "lm", "mca", "mce", "msr", "mtrr", "nx", "osxsave", "pae", "pat", "pclmulqdq", "pge", "pse", "pse36", "rdtscp", "sep", "tsc", "vme", "xsave"}},
	{CPULevel2, []string{"cx16", "lahf_lm", "pni", "popcnt", "sse4_1", "sse4_2", "ssse3"}, nil},
	{CPULevel3, []string{"abm", "avx", "avx2", "bmi1", "bmi2", "f16c", "fma", "movbe", "osxsave", "xsave"}, []string{"fsgsbase", "rdrand", "xsaveopt"}},
	{CPULevel4, []string{"avx512bw", "avx512cd", "avx512dq", "avx512f", "avx512vl"}, []string{"adx", "rdseed", "xgetbv1", "xsavec"}},
}

// CPULevelOf is the highest level whose features are all there, or empty for none.
func CPULevelOf(features []string) (level string) {
	for _, l := range cpuLevels {
		for _, f := range l.needs {
			if !slices.Contains(features, f) {
				return level
			}
		}
		level = l.name
	}
	return level
}

// CPUFeatures are the features that sandboxes of a level may have: all that are there of them
// on a host are shown.
func CPUFeatures(level string) (features []string) {
	for _, l := range cpuLevels {
		features = append(append(features, l.needs...), l.also...)
		if l.name == level {
			break
		}
	}
	slices.Sort(features)
	return slices.Compact(features)
}

// Known reports whether anything is known of the processor.
func (p Processor) Known() bool { return len(p.Features) > 0 }

// AtLeast reports whether it has all instructions of a level.
func (p Processor) AtLeast(level string) bool { return p.Level != "" && p.Level >= level }

// Shown is what sandboxes see of it at a level, which it has: CPUHost, or one of the others.
func (p Processor) Shown(level string) Processor {
	if level == "" || level == CPUHost || !p.Known() {
		return p
	}
	allowed := CPUFeatures(level)
	p.Features = slices.DeleteFunc(slices.Clone(p.Features), func(f string) bool { return !slices.Contains(allowed, f) })
	p.Level = CPULevelOf(p.Features)
	return p
}

// Lacks are the features of another that it has not.
func (p Processor) Lacks(other Processor) (features []string) {
	for _, f := range other.Features {
		if _, has := slices.BinarySearch(p.Features, f); !has {
			features = append(features, f)
		}
	}
	return features
}

// Wakes reports whether memory of programs that may use what another processor has can be woken
// on this one. Where too little is known it may be tried.
func (p Processor) Wakes(of *Processor) bool {
	if of == nil || !of.Known() || !p.Known() {
		return true
	}
	return len(p.Lacks(*of)) == 0 && p.CacheLine == of.CacheLine
}

// String names it for people.
func (p Processor) String() string {
	if p.Level == "" {
		return "an unknown processor"
	}
	return p.Vendor + " " + p.Level
}

// FeatureList names some features, and counts the others.
func FeatureList(features []string) string {
	const most = 6
	if len(features) <= most {
		return strings.Join(features, ", ")
	}
	return fmt.Sprintf("%s and %d more features", strings.Join(features[:most], ", "), len(features)-most)
}
