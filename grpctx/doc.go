// Package grpctx runs each unary call of a gRPC server in a transaction, and commits
// before the status leaves.
//
//	server := grpc.NewServer(grpc.ChainUnaryInterceptor(
//		recovery.UnaryServerInterceptor(), // outside
//		grpctx.UnaryServerInterceptor(adapter),
//	))
//
//	func (s *orders) Place(ctx context.Context, in *pb.Order) (*pb.Placed, error) {
//		tx, _ := s.adapter.TxFrom(ctx) // ctx carries the transaction
//		if _, err := tx.ExecContext(ctx, insertOrder); err != nil {
//			return nil, err // rolls back
//		}
//		id, err := s.outbox.Writer().Write(ctx, orderPlaced)
//		return &pb.Placed{EventId: id}, err // sent after the commit
//	}
//
// The adapter is any [outbox.Transactor]. Streams are left alone: use
// [outbox.InTx] in their handlers, once for each message or as the protocol says.
package grpctx
