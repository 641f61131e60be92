package main

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/outboxkit/outbox-go/outbox"
)

// bulk is a change of many events, such as replaying them.
type bulk struct {
	verb, past string // such as "replay" and "replayed"
	what       string // such as "dead letters"
	rest       string // the state of the events that were not reached
	batch      int    // how many events are changed at once
	atLeast    bool   // the number of matching events is a lower bound
	deletionID string // with which the change can be undone; empty: it cannot

	dryRun, yes bool
}

func (b *bulk) register(cmd *cobra.Command) {
	cmd.Flags().BoolVar(&b.dryRun, "dry-run", false, "say how many, change nothing")
	cmd.Flags().BoolVar(&b.yes, "yes", false, "do not ask")
}

// result returns the answer of a bulk change. The first field has the past form of the verb as its
// name, and the number of changed events as its value. doubt is how many more events may have been
// changed by a batch whose end is unknown.
func (b *bulk) result(done int, matching int64, interrupted bool, doubt int) map[string]any {
	answer := map[string]any{b.past: done, "matching": matching}
	if b.atLeast {
		answer["or_more"] = true
	}
	if b.dryRun {
		answer["dry_run"] = true
	}
	if b.deletionID != "" && done+doubt > 0 {
		answer["deletion_id"] = b.deletionID
	}
	if interrupted {
		answer["interrupted"] = true
	}
	if doubt > 0 {
		answer["in_doubt"] = doubt
	}
	return answer
}

// do changes the events, after a confirmation. change calls progress after each batch, and returns
// the number of events that it changed, also with an error.
func (a *app) do(ctx context.Context, b *bulk, matching int64, change func(ctx context.Context, progress func(done int)) (int, error)) error {
	if b.dryRun || matching == 0 {
		return a.print(b.result(0, matching, false, 0), func(t *table) {
			if b.dryRun {
				t.row(fmt.Sprintf("would %s %s %s", b.verb, b.count(matching), b.what))
			} else {
				t.row(fmt.Sprintf("there are no such %s, so nothing was changed", b.what))
			}
		})
	}
	if err := a.confirm(ctx, b, matching); err != nil {
		return err
	}
	total := matching
	if b.atLeast {
		total = -1 // a bar without an end
	}
	bar := a.progressBar(b.verb, total)
	working, w := gently(ctx, bar.set)
	done, err := change(working, w.progress)
	bar.end()
	err = a.warnUnrecorded(err)
	interrupted := err != nil && ctx.Err() != nil && (w.cut.Load() || errors.Is(err, context.Canceled))
	doubt := 0
	if interrupted && w.inDoubt(err) {
		doubt = b.batch
	}
	failed := err != nil && !interrupted
	if b.deletionID != "" && (done+doubt > 0 || failed) && (err != nil || !a.json) {
		defer func() { _, _ = fmt.Fprintf(a.errOut, "To undo the deletion: outbox dead restore %s\n", b.deletionID) }()
	}
	if failed {
		return fmt.Errorf("after it %s %d of %s %s: %w", b.past, done, b.count(matching), b.what, err)
	}
	if err := a.print(b.result(done, matching, interrupted, doubt), func(t *table) {
		if !interrupted {
			what := b.what
			if done == 1 {
				what = strings.TrimSuffix(what, "s")
			}
			t.row(fmt.Sprintf("%s %d %s", b.past, done, what))
		}
	}); err != nil {
		return err
	}
	if interrupted {
		return b.interruption(done, matching, doubt)
	}
	return nil
}

// count returns the number of matching events as a text.
func (b *bulk) count(matching int64) string {
	if b.atLeast {
		return fmt.Sprintf("%d or more", matching)
	}
	return fmt.Sprint(matching)
}

// interruption reports how far a change came that a signal ended.
func (b *bulk) interruption(done int, matching int64, doubt int) error {
	rest := b.rest
	if doubt > 0 {
		rest = fmt.Sprintf("the last batch did not end within %s, so up to %d more may be %s", stopPatience, doubt, b.past)
	}
	return fmt.Errorf("%w after it %s %d of %s %s; %s; to go on, run the command again", errInterrupted, b.past, done, b.count(matching), b.what, rest)
}

// errInterrupted is the error of a command that a signal ended.
var errInterrupted error = interrupted{}

type interrupted struct{}

func (interrupted) Error() string        { return "interrupted" }
func (interrupted) Is(target error) bool { return target == context.Canceled }

func (a *app) deadReplay() *cobra.Command {
	return a.deadBulk("replay", "Delivers dead letters again",
		`Delivers dead letters again: those whose ids are given, or all that the flags choose. They
get all their attempts again. A process that delivers finds them when it polls.

Letters that die again in the meantime are not replayed a second time.`,
		bulk{verb: "replay", past: "replayed", what: "dead letters", rest: "the others are still dead"},
		(*outbox.DeadLetters).Replay,
		func(ctx context.Context, dead *outbox.DeadLetters, f outbox.DeadFilter, batch int, opts ...outbox.BulkOption) (outbox.Deletion, error) {
			n, err := dead.ReplayAll(ctx, f, batch, opts...)
			return outbox.Deletion{Count: n}, err
		})
}

func (a *app) deadDelete() *cobra.Command {
	var final bool
	cmd := a.deadBulk("delete", "Deletes dead letters",
		`Deletes dead letters: those whose ids are given, or all that the flags choose. The command
prints how to undo the deletion: outbox dead restore. The letters can be restored until a
purge deletes their rows.

With --final the rows are deleted at once, and nothing brings them back: for data that must
be gone, or for space.`,
		bulk{verb: "delete", past: "deleted", what: "dead letters", rest: "the others are still there"}, nil,
		func(ctx context.Context, dead *outbox.DeadLetters, f outbox.DeadFilter, batch int, opts ...outbox.BulkOption) (outbox.Deletion, error) {
			if final {
				opts = append(opts, outbox.Final())
			}
			return dead.DeleteAll(ctx, f, batch, opts...)
		})
	cmd.Flags().BoolVar(&final, "final", false, "delete the rows, so that the deletion cannot be undone")
	return cmd
}

func (a *app) deadRestore() *cobra.Command {
	b := bulk{verb: "restore", past: "restored", what: "dead letters", rest: "the others are still deleted"}
	cmd := &cobra.Command{
		Use: "restore DELETION_ID", Short: "Undoes a deletion of dead letters", Args: takes(1, 1, "one id of a deletion"),
		Long: `Makes the events dead letters again that a deletion deleted, with the time of death, the
error and the attempts that they had. outbox dead delete prints the id of the deletion, and
outbox audit lists it.

Events that a purge has deleted cannot be restored.`,
		Example: "  outbox dead restore 01KQ9ZJ6ZK8X4T8N3S0P9V7R2C --dry-run",
		RunE: a.changes(func(ctx context.Context, c *client, args []string) error {
			matching, err := c.ob.DeadLetters().Restorable(ctx, args[0], 0)
			if err != nil {
				return err
			}
			if matching == 0 {
				return missing("no dead letter of this deletion can be restored: they are restored already, a purge deleted them, or there was no such deletion")
			}
			b.atLeast, b.batch = matching == outbox.StatsLimit, 500
			return a.do(ctx, &b, matching, func(ctx context.Context, progress func(int)) (int, error) {
				return c.ob.DeadLetters().Restore(ctx, args[0], outbox.OnProgress(progress))
			})
		}),
	}
	b.register(cmd)
	return cmd
}

// deadBulk is a command that changes dead letters. Without one, letters whose ids are given are changed by
// all.
func (a *app) deadBulk(use, short, long string, b bulk,
	one func(*outbox.DeadLetters, context.Context, string) error,
	all func(context.Context, *outbox.DeadLetters, outbox.DeadFilter, int, ...outbox.BulkOption) (outbox.Deletion, error),
) *cobra.Command {
	var f filter
	var group string
	var everything bool
	var batch int
	cmd := &cobra.Command{
		Use: use + " [EVENT_ID ...]", Short: short, Long: long,
		Example: "  outbox dead " + use + " --group j1te3m6bjjnkre61 --dry-run\n  outbox dead " + use + " --event-type OrderPlaced --since 2h --yes",
		RunE: a.changes(func(ctx context.Context, c *client, ids []string) error {
			chosen, err := f.dead(group, c.now())
			if err != nil {
				return err
			}
			if err := checkCount("--batch", batch, outbox.MaxBatch); err != nil {
				return err
			}
			chosen.EventIDs, err = chosenIDs(ids, everything, !f.isEmpty() || group != "")
			if err != nil {
				return err
			}
			matching, err := c.ob.DeadLetters().Count(ctx, chosen)
			if err != nil {
				return err
			}
			b.batch = 1
			if len(ids) > 0 && one != nil {
				return a.named(ctx, &b, c.ob.DeadLetters(), ids, matching, one)
			}
			b.batch = batch
			err = a.do(ctx, &b, matching, func(ctx context.Context, progress func(int)) (int, error) {
				d, err := all(ctx, c.ob.DeadLetters(), chosen, batch, outbox.OnProgress(progress))
				b.deletionID = d.ID
				return d.Count, err
			})
			if err == nil && len(ids) > int(matching) {
				err = notLetters(len(ids)-int(matching), len(ids))
			}
			return err
		}),
	}
	f.register(cmd, "only those that died")
	registerGroup(cmd, &group)
	b.register(cmd)
	cmd.Flags().BoolVar(&everything, "all", false, "all dead letters")
	cmd.Flags().IntVar(&batch, "batch", 500, "how many are changed in one transaction")
	return cmd
}

// chosenIDs checks that the letters are chosen in exactly one way, so that a forgotten flag does
// not choose all letters.
func chosenIDs(ids []string, everything, filtered bool) ([]string, error) {
	ways := 0
	for _, given := range []bool{len(ids) > 0, everything, filtered} {
		if given {
			ways++
		}
	}
	if ways != 1 {
		return nil, &usageError{"the choice of dead letters", "must be one of: event ids; flags such as --group or --event-type; --all"}
	}
	for _, id := range ids {
		if _, err := eventID(id); err != nil {
			return nil, err
		}
	}
	return ids, nil
}

// named changes the letters of these ids, and reports how many of the ids have no dead letter.
func (a *app) named(ctx context.Context, b *bulk, dead *outbox.DeadLetters, ids []string, matching int64, one func(*outbox.DeadLetters, context.Context, string) error) error {
	var absent int
	var unrecorded error // of the last change without an entry in the audit log
	var taken outbox.KeyTakenError
	err := a.do(ctx, b, matching, func(ctx context.Context, progress func(int)) (done int, err error) {
		for _, id := range ids {
			switch err := one(dead, ctx, id); {
			case err == nil:
				done++
				progress(done)
			case errors.Is(err, outbox.ErrNotRecorded):
				unrecorded = err
				done++
				progress(done)
			case exitCode(err) == exitNotFound:
				absent++
			case errors.Is(err, outbox.ErrKeyTaken):
				if taken.Letters++; taken.Letters == 1 {
					taken.EventID = id
				}
			default:
				return done, err
			}
		}
		if taken.Letters > 0 {
			return done, &taken
		}
		return done, unrecorded
	})
	if b.dryRun || matching == 0 {
		absent = len(ids) - int(matching)
	}
	if err == nil && absent > 0 {
		err = notLetters(absent, len(ids))
	}
	return err
}

func notLetters(absent, of int) error {
	return missing(fmt.Sprintf("%d of the %d event ids are not those of dead letters", absent, of))
}
