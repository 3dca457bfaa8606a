package gvisor

// CPUSeconds is the CPU time of Stats by itself, in seconds. It is read often: for
// what each sandbox has used, and whenever one is handed out.
func (m *Machine) CPUSeconds() (float64, error) { return m.group.CPUSeconds() }
