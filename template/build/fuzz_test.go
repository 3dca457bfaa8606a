package build

import (
	"runtime"
	"strings"
	"testing"
)

// allocating fails if f allocates more than most bytes for n.
func allocating(t *testing.T, n, most int, f func()) {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f()
	runtime.ReadMemStats(&after)
	if took := after.TotalAlloc - before.TotalAlloc; took > uint64(most) {
		t.Errorf("%d bytes take %d MB", n, took>>20)
	}
}

// FuzzDockerfile looks for Dockerfiles that end the server, which reads them itself, or take much memory.
func FuzzDockerfile(f *testing.F) {
	for _, text := range []string{
		"FROM a\nRUN echo $A", "ARG A=b\nFROM ${A:-c} AS d\nCOPY --from=d --chown=1:2 [\"a b\", \"/c\"]\n",
		"FROM a\nRUN --mount=type=cache,target=/c,id=x <<END\ntext\nEND\n", "# escape=`\nFROM a\nENV A=1 B=\"$A\"\nWORKDIR c:`d",
		"FROM scratch\nARG A=12345678\n" + strings.Repeat("ARG A=$A$A\n", 30), "FROM a\nENV A ${B:+${C:?d}}${A%%*b}${A/x/y}\nUSER $A\n",
		"FROM a\nHEALTHCHECK CMD a\nENTRYPOINT [\"a\"]\nCMD [\"b\"\nLABEL a=b\nEXPOSE 80\n", "FROM a@sha256:0\nADD --checksum=sha256:0 https://a/b /c\n",
	} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		allocating(t, len(text), 256<<20, func() {
			_, _ = Dockerfile(strings.NewReader(text), ReadOptions{Args: map[string]string{"A": "value"}})
		})
	})
}

// FuzzIgnore does the same for a .dockerignore.
func FuzzIgnore(f *testing.F) {
	for _, text := range []string{"a\n!b\n", "**/*.go\n", "d0/f[0-9]\n", "\\", "[a", strings.Repeat("**/a*a*b\n", 100), "/../..\n", "d?/**\n!d0/f1"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		files := ignored(t, 20, text)
		allocating(t, len(text), 256<<20, func() { _ = ignore(t.Context(), files, "Dockerfile") })
	})
}
