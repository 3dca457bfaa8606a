// Package processor tells sentries what this host's processor can do. Each would otherwise
// execute some 300 CPUID instructions, and in a virtual machine each of these traps to the
// hypervisor: 2 % of the work of a start. Only engine/gvisor uses it.
package processor

import (
	"bytes"
	"encoding/base64"
	"encoding/binary"
	"os"
	"slices"
	"strings"
	"sync"

	"gvisor.dev/gvisor/pkg/cpuid"

	"github.com/bothy-dev/bothy"
)

// variable is the environment variable that holds the answers.
const variable = "BOTHY_PROCESSOR"

// Env returns the variable, with its value, for a sentry's environment.
var Env = sync.OnceValue(func() string { return variable + "=" + encode(ask()) })

// Host returns this host's processor.
var Host = sync.OnceValue(func() bothy.Processor {
	fs := ask().ToFeatureSet()
	vendor := fs.VendorID()
	p := bothy.Processor{Vendor: string(vendor[:]), CacheLine: int(fs.CacheLine()), Hides: hides()}
	for _, f := range cpuid.AllFeatures() {
		if fs.HasFeature(f) {
			p.Features = append(p.Features, f.String())
		}
	}
	slices.Sort(p.Features)
	p.Level = bothy.CPULevelOf(p.Features)
	return p
})

// hides reports whether the kernel can make the processor trap CPUID instructions of programs.
func hides() bool {
	b, _ := os.ReadFile("/proc/cpuinfo")
	for line := range bytes.Lines(b) {
		if bytes.HasPrefix(line, []byte("flags")) {
			return slices.Contains(strings.Fields(string(line)), "cpuid_fault")
		}
	}
	return false
}

func encode(static cpuid.Static) string {
	var b []byte
	for in, out := range static {
		b, _ = binary.Append(b, binary.LittleEndian, answer{in, out})
	}
	return base64.StdEncoding.EncodeToString(b)
}

// An answer is the processor's answer to a CPUID query.
type answer struct {
	In  cpuid.In
	Out cpuid.Out
}

// Features returns the processor's features, from the environment, or else from the
// processor itself.
func Features() cpuid.FeatureSet {
	static := decode(os.Getenv(variable))
	if static == nil {
		static = ask()
	}
	return static.ToFeatureSet()
}

// decode returns the answers in a variable's value, or nil.
func decode(value string) cpuid.Static {
	b, err := base64.StdEncoding.DecodeString(value)
	size := binary.Size(answer{})
	if err != nil || len(b) == 0 || len(b)%size != 0 {
		return nil
	}
	static := make(cpuid.Static, len(b)/size)
	for ; len(b) > 0; b = b[size:] {
		var w [6]uint32
		for i := range w {
			w[i] = binary.LittleEndian.Uint32(b[4*i:])
		}
		static[cpuid.In{Eax: w[0], Ecx: w[1]}] = cpuid.Out{Eax: w[2], Ebx: w[3], Ecx: w[4], Edx: w[5]}
	}
	return static
}

// ask executes CPUID once for each answer.
func ask() cpuid.Static { return cpuid.FeatureSet{Function: answers{}}.ToStatic() }

// answers caches the processor's answers.
type answers cpuid.Static

// Query implements cpuid.Function.
func (a answers) Query(in cpuid.In) cpuid.Out {
	out, ok := a[in]
	if !ok {
		out = (*cpuid.Native)(nil).Query(in)
		a[in] = out
	}
	return out
}
