package vfs

// OnStaticFile, if set, returns the content of a file whose content is constant.
var OnStaticFile func(data string) string

func static(data string) string {
	if OnStaticFile != nil {
		return OnStaticFile(data)
	}
	return data
}
