package seccheck

// SkipInitialize makes Initialize do nothing. No point may be used then.
func SkipInitialize() { initOnce.Do(func() {}) }
