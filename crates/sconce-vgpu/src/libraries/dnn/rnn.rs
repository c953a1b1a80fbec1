//! Recurrent networks of cuDNN: how large weights, reserve and workspace are, and where each matrix
//! lies in the weights.

use crate::abi::{Handle, InPointer, OutPointer, entries, made, nothing};
use crate::machine::lock_state;

use super::{CudnnStatus, Result, Tensor, status};

/// What a descriptor of a network was told.
#[derive(Debug, Clone, Copy)]
pub struct Rnn {
    gates: usize,
    has_bias: bool,
    directions: usize,
    kind: i32,
    input: usize,
    hidden: usize,
    projected: usize,
    layers: usize,
}

/// Bytes of one element (`cudnnDataType_t`): float, double, half, bfloat16.
fn element_bytes(kind: i32) -> usize {
    match kind {
        1 => 8,
        2 | 9 => 2,
        _ => 4,
    }
}

impl Rnn {
    /// What a layer gives on, per direction.
    fn output(&self) -> usize {
        match self.projected {
            0 => self.hidden,
            size => size,
        }
    }

    /// What goes into a layer.
    fn width(&self, layer: usize) -> usize {
        match layer {
            0 => self.input,
            _ => self.output() * self.directions,
        }
    }

    fn projects(&self) -> bool {
        self.projected != 0 && self.projected != self.hidden
    }

    /// Rows and columns of a matrix: first those of the input, then those of the state, then the
    /// projection.
    fn matrix(&self, layer: usize, number: usize) -> Option<(usize, usize)> {
        match number / self.gates {
            0 => Some((self.hidden, self.width(layer))),
            1 => Some((self.hidden, self.output())),
            2 if self.projects() && number == 2 * self.gates => Some((self.projected, self.hidden)),
            _ => None,
        }
    }

    /// Elements of all matrices of one direction of a layer.
    fn matrices(&self, layer: usize) -> usize {
        let count = 2 * self.gates + usize::from(self.projects());
        let size = |number| {
            self.matrix(layer, number)
                .map_or(0, |(rows, columns)| rows * columns)
        };
        (0..count).map(size).sum()
    }

    fn biases(&self) -> usize {
        usize::from(self.has_bias) * 2 * self.gates * self.hidden
    }

    /// Elements of all weights: every matrix, then every bias.
    fn weights(&self) -> usize {
        let matrices: usize = (0..self.layers).map(|layer| self.matrices(layer)).sum();
        self.directions * (matrices + self.layers * self.biases())
    }

    /// Where a matrix and its bias begin, in elements, for a direction of a layer.
    fn places(&self, pseudo: usize, number: usize) -> (usize, usize) {
        let before = |layer: usize| self.directions * self.matrices(layer);
        let (layer, direction) = (pseudo / self.directions, pseudo % self.directions);
        let size = |number| {
            self.matrix(layer, number)
                .map_or(0, |(rows, columns)| rows * columns)
        };
        let matrix = (0..layer).map(before).sum::<usize>()
            + direction * self.matrices(layer)
            + (0..number).map(size).sum::<usize>();
        let all: usize = (0..self.layers).map(before).sum();
        (matrix, all + pseudo * self.biases() + number * self.hidden)
    }
}

made! { cudnnCreateRNNDescriptor cudnnCreateRNNDataDescriptor }

entries! { status;
    fn cudnnDestroyRNNDescriptor(network: Handle) {
        lock_state().networks.remove(&network);
        Ok(())
    }
    fn cudnnDestroyRNNDataDescriptor(data: Handle) {
        lock_state().network_data.remove(&data);
        Ok(())
    }
    fn cudnnSetRNNDescriptor_v8(
        network: Handle, algorithm: i32, cell: i32, bias: i32, direction: i32, input_mode: i32, kind: i32,
        precision: i32, math: i32, input: i32, hidden: i32, projected: i32, layers: i32
    ) {
        let _ = (algorithm, input_mode, precision, math);
        let size = |value: i32| usize::try_from(value).map_err(|_| CudnnStatus::BadParam);
        let told = Rnn {
            // ReLU and tanh have one gate, LSTM four, GRU three.
            gates: match cell { 2 => 4, 3 => 3, _ => 1 },
            has_bias: bias != 0,
            directions: if direction == 0 { 1 } else { 2 },
            kind,
            input: size(input)?,
            hidden: size(hidden)?,
            projected: size(projected)?,
            layers: size(layers)?,
        };
        lock_state().networks.insert(network, told);
        Ok(())
    }
    fn cudnnSetRNNDataDescriptor(data: Handle, kind: i32, layout: i32, steps: i32, batch: i32, width: i32, lengths: InPointer<i32>) {
        let _ = (kind, layout, width, lengths);
        let size = |value: i32| usize::try_from(value).map_err(|_| CudnnStatus::BadParam);
        let shape = (size(steps)?, size(batch)?);
        lock_state().network_data.insert(data, shape);
        Ok(())
    }
    fn cudnnGetRNNWeightSpaceSize(handle: Handle, network: Handle, size: OutPointer<usize>) {
        let _ = handle;
        let network = known(network)?;
        size.write(network.weights() * element_bytes(network.kind));
        Ok(())
    }
    fn cudnnGetRNNWeightParams(
        handle: Handle, network: Handle, pseudo: i32, space: usize, weights: u64, number: i32,
        matrix: Handle, matrix_at: OutPointer<u64>, bias: Handle, bias_at: OutPointer<u64>
    ) {
        let _ = (handle, space);
        let network = known(network)?;
        let place = |value: i32| usize::try_from(value).map_err(|_| CudnnStatus::BadParam);
        let (pseudo, number) = (place(pseudo)?, place(number)?);
        let shape = network.matrix(pseudo / network.directions, number);
        let (at, bias_begins) = network.places(pseudo, number);
        let bytes = element_bytes(network.kind);
        let tensor = |sizes: [usize; 3]| Tensor {
            kind: network.kind,
            format: 0,
            sizes: sizes.map(|size| size as i32).to_vec(),
            strides: [sizes[1] * sizes[2], sizes[2], 1].map(|size| size as i32).to_vec(),
        };
        let mut machine = lock_state();
        if let Some((rows, columns)) = shape {
            machine.tensors.insert(matrix, tensor([1, rows, columns]));
            matrix_at.write(weights + (at * bytes) as u64);
        } else {
            matrix_at.write(0);
        }
        if network.has_bias && number < 2 * network.gates {
            machine.tensors.insert(bias, tensor([1, network.hidden, 1]));
            bias_at.write(weights + (bias_begins * bytes) as u64);
        } else {
            bias_at.write(0);
        }
        Ok(())
    }
    // A model, as what cuDNN keeps is not published: of every step its gates and two states.
    fn cudnnGetRNNTempSpaceSizes(handle: Handle, network: Handle, mode: i32, data: Handle, work: OutPointer<usize>, reserve: OutPointer<usize>) {
        const TRAINING: i32 = 1;
        let _ = handle;
        let network = known(network)?;
        let mut machine = lock_state();
        let (steps, batch) = machine.network_data.get(&data).copied().ok_or(CudnnStatus::BadParam)?;
        machine.asked.dnn.recurrent += 1;
        drop(machine);
        let layer = steps * batch * network.hidden * network.directions * element_bytes(network.kind);
        work.write(layer * network.gates);
        let kept = layer * network.layers * (network.gates + 2);
        reserve.write(if mode == TRAINING { kept } else { 0 });
        Ok(())
    }
}

fn known(network: Handle) -> Result<Rnn> {
    lock_state()
        .networks
        .get(&network)
        .copied()
        .ok_or(CudnnStatus::BadParam)
}

nothing! { cudnnRNNForward cudnnRNNBackwardData_v8 cudnnRNNBackwardWeights_v8 }

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn weights_of_an_lstm_lie_one_after_the_other() {
        let lstm = Rnn {
            gates: 4,
            has_bias: true,
            directions: 2,
            kind: 0,
            input: 10,
            hidden: 20,
            projected: 20,
            layers: 2,
        };
        // As torch counts the parameters of nn.LSTM(10, 20, 2, bidirectional=True).
        let layer = |input: usize| 4 * 20 * (input + 20) + 8 * 20;
        assert_eq!(lstm.weights(), 2 * (layer(10) + layer(40)));
        assert_eq!(lstm.places(0, 0), (0, 2 * (4 * 20 * 30 + 4 * 20 * 60)));
        assert_eq!(lstm.places(1, 5).0, 4 * 20 * 30 + 4 * 200 + 400);
        assert_eq!(lstm.matrix(1, 0), Some((20, 40)));
        assert_eq!(lstm.matrix(0, 8), None);
    }
}
