package vfs

// OnStaticFile, if it is set, returns what is read of a file that always has the same
// content.
var OnStaticFile func(data string) string

func static(data string) string {
	if OnStaticFile != nil {
		return OnStaticFile(data)
	}
	return data
}
