package microvm

import (
	"strings"
	"testing"

	"github.com/bothy-dev/bothy"
)

// A machine of a level has a QEMU processor with exactly that level's features.
func TestTheProcessorOfALevel(t *testing.T) {
	command := func(h hardware) string {
		a, err := qemu{}.command(h)
		if err != nil {
			t.Fatal(err)
		}
		_, after, _ := strings.Cut(strings.Join(a, " "), " -cpu ")
		model, _, _ := strings.Cut(after, " ")
		return model
	}
	host := bothy.Processor{Vendor: "AuthenticAMD", Level: bothy.CPULevel4, CacheLine: 64, Features: bothy.CPUFeatures(bothy.CPULevel4)}
	e := &Engine{o: Options{Acceleration: bothy.AccelerationKVM, Processor: host, CPULevel: bothy.CPUHost}}
	kvm := hardware{accel: bothy.AccelerationKVM, features: e.features()}
	if got := command(kvm); got != "host,migratable=on" {
		t.Errorf("for the host's own level it is %s", got)
	}
	e.o.CPULevel = bothy.CPULevel3
	kvm.features = e.features()
	got := command(kvm)
	for _, want := range []string{"qemu64,", ",+avx2", ",+sse4.2", ",+sse3", ",+lahf-lm", ",+fma"} {
		if !strings.Contains(got+",", want+",") && !strings.HasPrefix(got, want) {
			t.Errorf("for level 3 it is %s, without %s", got, want)
		}
	}
	for _, no := range []string{"avx512", "pni", "osxsave", "adx"} {
		if strings.Contains(got, no) {
			t.Errorf("for level 3 it is %s, with %s", got, no)
		}
	}
	// Hosts whose machines see the same features have the same build.
	low := &Engine{o: e.o}
	low.o.Processor = host.Shown(bothy.CPULevel3)
	a, err := e.host()
	b, errLow := low.host()
	if err != nil || errLow != nil || a != b || a == "" {
		t.Errorf("the builds of two hosts are %q and %q: %v %v", a, b, err, errLow)
	}
	// An emulated machine has the same features everywhere.
	e.o.Acceleration = bothy.AccelerationEmulated
	if got := command(hardware{features: e.features()}); got != emulatedCPU {
		t.Errorf("for emulation it is %s", got)
	}
}
