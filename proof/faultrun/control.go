package faultrun

import (
	"bufio"
	"fmt"
	"os"
	"strings"
	"time"
)

// Commands to a process, each on a line of the standard input.
const (
	finish = "finish" // the writers begin no further transactions
	clock  = "clock"  // a duration follows: how far the process's clock is from the system's
)

// obey carries out the commands of the run.
func (n *node) obey(stopWriting func()) {
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		command, argument, _ := strings.Cut(lines.Text(), " ")
		switch command {
		case finish:
			stopWriting()
		case clock:
			n.offset.Store(int64(must(time.ParseDuration(argument))))
		}
	}
	fmt.Fprintln(os.Stderr, "the run has ended")
	os.Exit(1)
}

// Finish makes the process's writers begin no further transactions; see [Process.Written].
func (p *Process) Finish() { p.command(finish) }

// SetClock sets how far the process's clock is from the system's.
func (p *Process) SetClock(offset time.Duration) { p.command(clock + " " + offset.String()) }

// command sends a command. A process that has ended gets no command.
func (p *Process) command(line string) { _, _ = fmt.Fprintln(p.commands, line) }
