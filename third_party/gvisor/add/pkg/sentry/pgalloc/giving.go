package pgalloc

// onGiving is called before memory of the file is given out, if it is set. Locks are
// held then.
var onGiving func(f *MemoryFile, bytes uint64)

func giving(f *MemoryFile, bytes uint64) {
	if onGiving != nil {
		onGiving(f, bytes)
	}
}
