package cpuid

import "testing"

func TestInitializeWith(t *testing.T) {
	known := Static{In{}: Out{Eax: 7, Ebx: 'B'}}
	InitializeWith(known.ToFeatureSet())
	Initialize() // is too late
	if got := HostFeatureSet().Query(In{}); got != known[In{}] {
		t.Errorf("the processor says %+v", got)
	}
}
