package chaos

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/outboxkit/outbox-go/internal/testing/secrets"
	"github.com/outboxkit/outbox-go/proof/checker"
	"github.com/outboxkit/outbox-go/proof/faultrun"
)

// grep searches the output of processes, and the reasons of the rows, for data of events and
// passwords, which neither may have. grep also looks for the text that a process prints when it
// fails.
func grep(dir string, h checker.History) (found []checker.Violation) {
	add := func(where, word string) {
		found = append(found, checker.Violation{Rule: checker.RuleRecords, Text: fmt.Sprintf("%s has %q", where, word)})
	}
	private := append([]string{password}, faultrun.Secrets...)
	names, _ := filepath.Glob(filepath.Join(dir, "*.stderr"))
	for _, name := range names {
		text, err := os.ReadFile(name)
		if err != nil {
			found = append(found, checker.Violation{Rule: checker.RuleRecords, Text: err.Error()})
		}
		for i, line := range strings.Split(string(text), "\n") {
			for _, word := range secrets.FindOf(line, private...) {
				add(fmt.Sprintf("%s:%d", name, i+1), word)
			}
			for _, word := range []string{"DATA RACE", "panic: ", "fatal error: "} {
				if strings.Contains(line, word) {
					add(fmt.Sprintf("%s:%d", name, i+1), word)
				}
			}
		}
	}
	for target, row := range h.Rows {
		for _, word := range secrets.FindOf(row.LastError, private...) {
			add(fmt.Sprintf("last_error of %v", target), word)
		}
	}
	return found
}
