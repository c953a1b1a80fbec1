//! `cufftXt.h`: plans, and the workspace that each takes.

use crate::abi::{Handle, InPointer, OutPointer, entries, nothing};
use crate::machine::lock_state;

fn status(answer: Result<(), i32>) -> i32 {
    answer.err().unwrap_or(0)
}

entries! { status;
    fn cufftCreate(plan: OutPointer<i32>) {
        plan.write(lock_state().next_handle() as i32);
        Ok(())
    }
    // A model: as much as the data, which transforms that are not in place need.
    fn cufftXtMakePlanMany(
        plan: i32, rank: i32, sizes: InPointer<i64>, in_embed: Handle, in_stride: i64, in_distance: i64,
        in_kind: i32, out_embed: Handle, out_stride: i64, out_distance: i64, out_kind: i32, batch: i64,
        work: OutPointer<usize>
    ) {
        let _ = (plan, in_embed, in_stride, in_distance, in_kind, out_embed, out_stride, out_distance, out_kind);
        const COMPLEX_BYTES: i64 = 8;
        let rank = usize::try_from(rank).unwrap_or(0).min(3);
        let points: i64 = (0..rank).filter_map(|at| sizes.read_at(at)).product();
        let bytes = points.saturating_mul(batch).saturating_mul(COMPLEX_BYTES);
        work.write(usize::try_from(bytes).unwrap_or(0));
        Ok(())
    }
}

nothing! { cufftDestroy cufftSetAutoAllocation cufftSetStream cufftSetWorkArea cufftXtExec }
