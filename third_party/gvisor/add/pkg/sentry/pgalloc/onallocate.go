package pgalloc

// OnAllocate is called before memory of a file is given out, if it is set. Locks are held
// then.
var OnAllocate func(f *MemoryFile, bytes uint64)

func allocating(f *MemoryFile, bytes uint64) {
	if OnAllocate != nil {
		OnAllocate(f, bytes)
	}
}
