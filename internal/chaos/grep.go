package chaos

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"

	"github.com/outboxkit/outbox-go/internal/checker"
	"github.com/outboxkit/outbox-go/internal/faultrun"
)

// grep looks in what processes printed for what no log may have: data of events and
// passwords, and what a process prints when it fails.
func grep(dir string) (found []checker.Violation) {
	names, _ := filepath.Glob(filepath.Join(dir, "*.stderr"))
	for _, name := range names {
		text, err := os.ReadFile(name)
		if err != nil {
			found = append(found, checker.Violation{Rule: checker.RuleRecords, Text: err.Error()})
		}
		for _, word := range append([]string{password, "DATA RACE", "panic: ", "fatal error: "}, faultrun.Secrets...) {
			if i := bytes.Index(text, []byte(word)); i >= 0 {
				line := bytes.Count(text[:i], []byte("\n")) + 1
				found = append(found, checker.Violation{Rule: checker.RuleRecords, Text: fmt.Sprintf("%s:%d has %q", name, line, word)})
			}
		}
	}
	return found
}
