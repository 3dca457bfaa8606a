package vfs

// onStatic, if it is set, returns what is read of a file that always has the same content.
var onStatic func(data string) string

func static(data string) string {
	if onStatic != nil {
		return onStatic(data)
	}
	return data
}
