//! What a convolution's workspace is taken to be where NVIDIA's library cannot be asked: cuDNN before
//! 9.8, which PyTorch has up to 2.7.
//!
//! The rule is what 9.10 says of most convolutions ([decision 031] says of how many): tensor cores read
//! channels-last data, so operands that are not are copied, and those in single precision are copied all
//! the same. A gradient of weights is summed in pieces, in single precision. Rather too much than too
//! little: of two engines the one that takes more.
//!
//! [decision 031]: ../../../../../docs/decisions/031-workspaces.md

use super::nvidia::CHOICE;

/// A tensor of a convolution.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Operand {
    /// `cudnnDataType_t`
    pub kind: i32,
    /// Batch or outputs, channels, then space.
    pub sizes: Vec<u64>,
    pub strides: Vec<u64>,
}

impl Operand {
    fn elements(&self) -> u64 {
        self.sizes
            .iter()
            .fold(1, |all, size| all.saturating_mul(*size))
    }

    fn bytes(&self) -> u64 {
        let each = match self.kind {
            1 | 10 => 8,
            0 | 4 => 4,
            2 | 9 => 2,
            _ => 1,
        };
        self.elements().saturating_mul(each)
    }

    /// Channels lie beside each other.
    fn is_channels_last(&self) -> bool {
        self.strides.get(1) == Some(&1)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ConvolutionPass {
    Forward,
    /// To the gradient of the input.
    Data,
    /// To the gradient of the weight.
    Weight,
}

/// A convolution, or one of its gradients.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Convolution {
    pub direction: ConvolutionPass,
    pub input: Operand,
    pub weight: Operand,
    pub output: Operand,
}

impl Convolution {
    /// Operations; a multiply-add is two. Each element of the output is a product over one filter.
    pub fn operation_count(&self) -> u64 {
        let filter = self.weight.sizes.iter().skip(1);
        let filter = filter.fold(2_u64, |all, size| all.saturating_mul(*size));
        filter.saturating_mul(self.output.elements())
    }
}

/// Pieces of a gradient of weights, of the most that was seen for usual shapes.
const PIECES: u64 = 8;

/// The workspace, in bytes, on a card of this compute capability, times ten.
pub fn workspace_bytes(convolution: &Convolution, capability: u32) -> u64 {
    match std::env::var_os(CHOICE) {
        Some(choice) if choice == "none" => 0,
        _ => modelled(convolution, capability),
    }
}

fn modelled(convolution: &Convolution, capability: u32) -> u64 {
    let Convolution {
        direction,
        input,
        weight,
        output,
    } = convolution;
    let half = matches!(weight.kind, 2 | 9);
    let tensor_cores = capability >= if half { 70 } else { 80 } && weight.kind != 1;
    let operands = [input, weight, output];
    let channels_last = operands.iter().any(|operand| operand.is_channels_last());
    // What reads eight channels at once has copies with as many.
    let odd = [input.sizes.get(1), weight.sizes.first()]
        .iter()
        .any(|channels| channels.is_none_or(|channels| channels % 8 != 0));
    let copied = match tensor_cores {
        true => !channels_last || !half || odd,
        false => channels_last,
    };
    let copies = match copied {
        true => operands
            .iter()
            .fold(0_u64, |all, operand| all.saturating_add(operand.bytes())),
        false => 0,
    };
    let sums = match direction {
        ConvolutionPass::Weight if tensor_cores => weight.elements().saturating_mul(4 * PIECES),
        _ => 0,
    };
    copies.saturating_add(sums)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn operand(kind: i32, sizes: [u64; 4], channels_last: bool) -> Operand {
        let [_, c, h, w] = sizes;
        let strides = match channels_last {
            true => vec![c * h * w, 1, w * c, c],
            false => vec![c * h * w, h * w, w, 1],
        };
        Operand {
            kind,
            sizes: sizes.to_vec(),
            strides,
        }
    }

    fn convolution(direction: ConvolutionPass, kind: i32, channels_last: bool) -> Convolution {
        Convolution {
            direction,
            input: operand(kind, [32, 64, 56, 56], channels_last),
            weight: operand(kind, [64, 64, 3, 3], channels_last),
            output: operand(kind, [32, 64, 56, 56], channels_last),
        }
    }

    // The figures are those of cuDNN 9.10.2 for an H100: 51,527,827, 25,763,987, 131 and 295,107 bytes.
    #[test]
    fn copies_are_made_of_what_is_not_channels_last() {
        let of = |direction, kind, last| modelled(&convolution(direction, kind, last), 90);
        assert_eq!(of(ConvolutionPass::Forward, 0, false), 51_527_680);
        assert_eq!(of(ConvolutionPass::Data, 2, false), 25_763_840);
        assert_eq!(of(ConvolutionPass::Forward, 9, true), 0);
        assert_eq!(of(ConvolutionPass::Weight, 9, true), 8 * 4 * 36_864);
    }

    #[test]
    fn what_uses_no_tensor_cores_takes_nothing() {
        let single = convolution(ConvolutionPass::Forward, 0, false);
        assert_eq!(modelled(&single, 75), 0);
        assert_eq!(
            modelled(&convolution(ConvolutionPass::Forward, 1, false), 90),
            0
        );
    }

    #[test]
    fn sizes_that_make_no_sense_do_not_overflow() {
        let mut wrong = convolution(ConvolutionPass::Weight, 0, false);
        wrong.input.sizes = vec![u64::MAX, 3];
        wrong.output.sizes = vec![u64::MAX; 8];
        assert_eq!(modelled(&wrong, 90), u64::MAX);
        wrong.weight = Operand::default();
        assert_eq!(wrong.operation_count(), u64::MAX);
    }

    #[test]
    fn the_work_of_a_convolution() {
        let one = convolution(ConvolutionPass::Forward, 0, false);
        assert_eq!(one.operation_count(), 2 * 64 * 9 * 32 * 64 * 56 * 56);
    }
}
