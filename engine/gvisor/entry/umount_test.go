package entry

import (
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"testing"
)

func TestUmounterUnmountsAtAWord(t *testing.T) {
	program := umountProgram()
	if program == nil {
		t.Skip("the library's own is used here")
	}
	fd, err := programInMemory("umount", program)
	if err != nil {
		t.Fatal(err)
	}
	f := os.NewFile(uintptr(fd), "umount")
	defer f.Close()
	if _, err := f.WriteAt([]byte("x"), 0); err == nil {
		t.Error("the program can be changed")
	}
	for word, works := range map[string]bool{"": false, "x": true} {
		r, w, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		defer r.Close()
		cmd := exec.Command(fmt.Sprintf("/proc/self/fd/%d", fd))
		cmd.ExtraFiles = []*os.File{r}
		// Mounts are private there.
		cmd.SysProcAttr = &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNS}
		w.WriteString(word)
		w.Close()
		if err := cmd.Run(); (err == nil) != works {
			t.Errorf("with the word %q: %v", word, err)
		}
	}
	if _, err := os.Stat("/proc/self"); err != nil {
		t.Errorf("it unmounted more than its own: %v", err)
	}
}
