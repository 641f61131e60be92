package main

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/outboxkit/outbox-go/internal/contract"
)

func (a *app) contracts() *cobra.Command {
	return groupOf("contracts", "Compares the formats of events, without a database", a.contractsDiff())
}

// breakingChange is a change between two contracts that breaks a reader.
type breakingChange struct {
	Kind    string `json:"kind"`
	Path    string `json:"path,omitempty"`
	Problem string `json:"problem"`
	Breaks  string `json:"breaks"`
}

func (a *app) contractsDiff() *cobra.Command {
	return &cobra.Command{
		Use: "diff OLD NEW", Short: "Prints the changes that break a reader, and fails if there are any", Args: takes(2, 2, "two files or two folders"),
		Long: `Prints the changes from OLD to NEW that break a reader, and fails if there are any.
OLD and NEW are two files, or two folders, that a test with contracts.Check wrote.`,
		Example: "  git worktree add ../main main\n  outbox contracts diff ../main/contracts contracts",
		RunE: func(_ *cobra.Command, args []string) error {
			old, err := readContracts("OLD", args[0])
			if err != nil {
				return err
			}
			now, err := readContracts("NEW", args[1])
			if err != nil {
				return err
			}
			if was, is := old[singleContract], now[singleContract]; (was == nil) != (is == nil) {
				return &usageError{"OLD and NEW", "are a file and a folder; give two files or two folders"}
			}
			changes := []breakingChange{}
			for _, change := range contract.DiffAll(old, now) {
				changes = append(changes, breakingChange{change.Kind, change.Path, change.Problem, change.Breaks.String()})
			}
			err = a.print(changes, func(t *table) {
				if len(changes) == 0 {
					t.row(fmt.Sprintf("no change breaks a reader (%d kinds)", len(old)))
					return
				}
				t.row("KIND", "FIELD", "BREAKS", "CHANGE")
				for _, change := range changes {
					t.row(change.Kind, change.Path, change.Breaks, change.Problem)
				}
			})
			if err == nil && len(changes) > 0 {
				return exitError(exitFailed)
			}
			return err
		},
	}
}

// singleContract is the name of a file that was given, whatever its name is.
const singleContract = ""

// readContracts reads a file, or all files of a folder.
func readContracts(argument, path string) (map[string]*contract.Contract, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, fmt.Errorf("reading %s: %w", argument, err)
	}
	if !info.IsDir() {
		c, err := readContract(argument, path)
		return map[string]*contract.Contract{singleContract: c}, err
	}
	names, _ := fs.Glob(os.DirFS(path), "*.json") // the folder's name is no pattern, and this pattern has no error
	all := map[string]*contract.Contract{}
	for _, name := range names {
		if name == contract.AsyncAPIFile {
			continue
		}
		if all[name], err = readContract(argument, filepath.Join(path, name)); err != nil {
			return nil, err
		}
	}
	if len(all) == 0 {
		return nil, &usageError{argument, "is a folder without contracts; give the folder of contracts.Check"}
	}
	return all, nil
}

func readContract(argument, path string) (*contract.Contract, error) {
	data, err := os.ReadFile(path) //nolint:gosec // the user names the file
	if err != nil {
		return nil, fmt.Errorf("reading %s: %w", argument, err)
	}
	c, err := contract.Parse(data)
	if err != nil {
		return nil, fmt.Errorf("reading %s: %s is %w", argument, filepath.Base(path), err)
	}
	return c, nil
}
