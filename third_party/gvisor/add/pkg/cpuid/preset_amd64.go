package cpuid

// InitializeWith is Initialize for a processor with known features. Querying them takes some 300
// CPUID instructions, each of which exits to the hypervisor in a virtual machine.
func InitializeWith(features FeatureSet) {
	initOnce.Do(func() {
		hostFeatureSet = features
		readMaxCPUFreq()
		initHWCap()
	})
}
