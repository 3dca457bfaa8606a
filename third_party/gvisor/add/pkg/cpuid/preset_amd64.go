package cpuid

// InitializeWith is Initialize for a processor of which the features are known: to ask it
// takes some 300 questions, of which each goes to the host in a virtual machine.
func InitializeWith(features FeatureSet) {
	initOnce.Do(func() {
		hostFeatureSet = features
		readMaxCPUFreq()
		initHWCap()
	})
}
