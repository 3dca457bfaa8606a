package pgalloc

// OnAllocate, if set, is called before memory of a file is allocated, with locks held.
var OnAllocate func(f *MemoryFile, bytes uint64)

func allocating(f *MemoryFile, bytes uint64) {
	if OnAllocate != nil {
		OnAllocate(f, bytes)
	}
}
