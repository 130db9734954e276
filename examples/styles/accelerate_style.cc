// single_device, made data-parallel in Accelerate's manner: prepare() wraps everything, and
// backward() goes through the accelerator. The program also takes Accelerate's flags and
// configuration. The lines that differ are marked.
#include "examples/styles/common.h"

#include <fmt/format.h>
#include <kolo/torch.h>

int main(int argc, char** argv) {
  kolo::AcceleratorConfig config;  // kolo
  const auto train = [&](const styles::Flags& flags) {
    kolo::Accelerator accelerator(config);  // kolo
    const styles::Data data = styles::load(flags);
    auto recipe = kolo::loader_recipe(mnist::DigitDataset(data.train),  // kolo
                                      {.batch_size = flags.batch_size});

    mnist::Network network(/*with_dropout=*/true);
    torch::optim::AdamW adam(network->parameters(), flags.learning_rate);
    auto [model, optimizer, loader] = accelerator.prepare(network, adam, recipe);  // kolo

    double accuracy = 0;
    for (int epoch = 1; epoch <= flags.epochs; ++epoch) {
      const styles::EpochReport report(epoch, flags);
      model.train();
      double loss_sum = 0;
      std::int64_t steps = 0;
      for (auto& batch : loader) {
        auto pass = accelerator.accumulate(model);  // kolo
        optimizer.zero_grad();
        auto loss = torch::nll_loss(model.forward(batch.data), batch.target);
        accelerator.backward(loss);  // kolo
        optimizer.step();
        loss_sum += loss.item<double>();
        ++steps;
      }
      model.eval();
      const auto forward = [&](torch::Tensor images) { return network->forward(images); };
      const auto mine = styles::answer(forward, data.test, accelerator.device(),  // kolo
                                       accelerator.process_index(), accelerator.num_processes());
      const auto all =
          accelerator
              .gather(torch::tensor(  // kolo
                  {{loss_sum / static_cast<double>(steps) / accelerator.num_processes(),
                    static_cast<double>(mine.right), static_cast<double>(mine.count)}},
                  torch::kFloat64))
              .sum(0);
      accuracy = (all[1] / all[2]).item<double>();  // kolo
      if (accelerator.is_main_process())            // kolo
        report.print(all[0].item<double>(), accuracy, data.train.count());
    }
    accelerator.print(fmt::format("Accuracy: {:.2f} %", 100 * accuracy));  // kolo
  };
  const auto take_flags = [&](int& count, char** flags) {
    config = kolo::AcceleratorConfig::take_flags(count, flags);  // kolo
  };
  return styles::run(argc, argv,
                     "Trains with an Accelerator. Takes Accelerate's flags, too: --config_file "
                     "FILE, --mixed_precision no|bf16|fp16, --gradient_accumulation_steps N, --cpu "
                     "and the others of docs/coming_from.md.",
                     train, {.device = false, .take_flags = take_flags});
}
