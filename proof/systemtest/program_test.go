package systemtest

import (
	"cmp"
	"io"
	"log"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/go-sql-driver/mysql"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	_ = mysql.SetLogger(log.New(io.Discard, "", 0)) // it logs each lost connection
	goleak.VerifyTestMain(m)
}

// wholeSystem skips the test unless whole systems are to be tested.
func wholeSystem(t *testing.T) {
	t.Helper()
	if os.Getenv("OUTBOX_TEST_SYSTEM") != "true" {
		t.Skip("it starts servers of its own and takes long: make chaos/system runs it (OUTBOX_TEST_SYSTEM=true)")
	}
}

// program finds a program in the folders, whose names may have wildcards and of which
// the newest version counts, or in PATH. It fails the test with the way to get it.
func program(t testing.TB, name, way string, folders ...string) string {
	t.Helper()
	for _, folder := range folders {
		if found, _ := filepath.Glob(filepath.Join(folder, name)); len(found) > 0 {
			newest := slices.MaxFunc(found, func(a, b string) int { return cmp.Compare(version(a), version(b)) })
			path, err := filepath.Abs(newest) // it runs in another folder
			require.NoError(t, err)
			return path
		}
	}
	path, err := exec.LookPath(name)
	if err != nil {
		t.Fatalf("%s is missing: %s", name, way)
	}
	return path
}

// version is the first number in the path of a program.
func version(path string) int {
	digits := strings.FieldsFunc(path, func(r rune) bool { return r < '0' || r > '9' })
	if len(digits) == 0 {
		return 0
	}
	n, _ := strconv.Atoi(digits[0])
	return n
}
